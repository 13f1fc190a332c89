"""Files that this library writes and reads again: JSON, and JSON lines, of which a kill may cut the last one short."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from outcome_rl.files.bounds import bounded_lines, read_state_file
from outcome_rl_kernels.settings import check_types
from outcome_rl_kernels.whole_files import open_to_append, whole_file


def write_rows(path: str | os.PathLike[str], rows: Iterable[Any]) -> None:
    """Write a JSONL file, one value per line, atomically."""
    with whole_file(path) as file:
        file.writelines(json.dumps(row).encode() + b"\n" for row in rows)


def read_rows(path: Path, declared: Any = dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the JSONL rows that this library appended to a file; none if there is no file.

    A last line without its line end is left out: a kill cut it short, or another process is writing it.

    Args:
        declared: type of a row, such as a `TypedDict` with the fields that the caller reads.

    Raises:
        ValueError: a row is not such a JSON object.
    """
    if path.is_file():  # a pipe or a device would never end
        with path.open("rb") as file:
            for number, line in enumerate(bounded_lines(file, path), start=1):
                if not line.endswith(b"\n"):
                    return
                yield _parsed(
                    line, declared, f"{path}, row {number}", "Remove this row, or restore the file from a copy"
                )


def read_json(path: Path) -> dict[str, Any]:
    """Read a small JSON object that this library wrote.

    Raises:
        FileNotFoundError, ValueError: as for `read_state_file`; it is not a JSON object.
    """
    return _parsed(read_state_file(path), dict[str, Any], str(path), "Restore it from a copy")


def _parsed(text: bytes, declared: Any, where: str, fix: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(text)
        check_types("it", [value], declared)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is damaged: {error}. {fix}") from error
    return value


def append_rows(path: Path) -> BinaryIO:
    """Open a file to append rows to it, without a last line that a kill cut short.

    Raises:
        OSError: as for `open_to_append`.
        ValueError: a line is too long.
    """
    file = open_to_append(path)
    file.seek(0)
    file.truncate(sum(len(line) for line in bounded_lines(file, path) if line.endswith(b"\n")))
    return file
