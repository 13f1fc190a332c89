"""Tables of texts: the rows of the TSV file beside a test module.

A row has the name of its table, a reason, and its cells. `⏎` is a line feed, and `⟨U+0301⟩` the character of that code.
"""

import re
from pathlib import Path
from typing import Any

import pytest


def rows(module: str, table: str) -> list[list[str]]:
    """Return the reason and the cells of each row of one table of a module, given by its `__file__`."""
    lines = Path(module).with_suffix(".tsv").read_text("utf-8").split("\n")
    found = [line.split("\t")[1:] for line in lines if line.startswith(f"{table}\t")]
    assert found, f"{module} has no table {table}"
    return [[decoded(cell) for cell in row] for row in found]


def cases(module: str, table: str) -> list[Any]:
    """Return the cells of each row as a parameter set, which a reason names."""
    return [pytest.param(*cells, id=f"{reason}: {cells[0]}") for reason, *cells in rows(module, table)]


def decoded(cell: str) -> str:
    return re.sub("⟨U[+]([0-9A-F]+)⟩", lambda code: chr(int(code[1], 16)), cell.replace("⏎", "\n"))
