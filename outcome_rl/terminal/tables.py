"""Results of a command in tables, on stdout."""

import json
import shutil
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from outcome_rl.files.atomic import write_json
from outcome_rl.terminal.text import on_one_line


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> None:
    """Print rows of cells in columns, aligned to the right for `numbers`, and an empty line after them.

    The last column wraps at the width of the terminal.
    """
    table = [[on_one_line(cell) for cell in row] for row in (header, *rows)]
    *widths, last = (max(map(len, column)) for column in zip(*table, strict=True))
    indent = sum(width + 2 for width in widths)
    room = max(shutil.get_terminal_size().columns - indent, 20)
    for *cells, end in table:
        first, *rest = textwrap.wrap(end, room) or [""]
        line = [*cells, first]
        print("  ".join(map(str.rjust if numbers else str.ljust, line, [*widths, min(last, room)])).rstrip())
        for more in rest:
            print(" " * indent + more)
    print()


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 question" and "2 questions"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def checked_output(option: str, out: Path | None, inputs: Iterable[Path]) -> Path | None:
    """Return the absolute path of a file to write; refuse one that could not be written at the end, or is an input."""
    if out is None or out == Path("-"):
        return out
    if not out.absolute().parent.is_dir():
        raise FileNotFoundError(f"{option} {out}: the folder {out.parent} does not exist.")
    if out.is_dir():
        raise IsADirectoryError(f"{option} {out} is a folder; give a file")
    if out.exists() and any(one.exists() and out.samefile(one) for one in inputs):
        raise ValueError(f"{option} {out} is a file to read, and would be replaced; give another name")
    return out.absolute()


def print_result(result: Any, json_out: Path | None, print_tables: Callable[[], None]) -> None:
    """Print the tables of a result and write it as JSON, or print the JSON alone for `--json -`."""
    if json_out == Path("-"):
        print(json.dumps(result, indent=2))
        return
    print_tables()
    if json_out is not None:
        write_json(json_out, result)
