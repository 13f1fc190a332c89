"""Read files of one JSON value a line, with errors that say where."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def read_jsonl(path: Path, where: Callable[[int], str]) -> Iterator[tuple[int, Any]]:
    """Yield the number, from 1, and the value of every line that is not blank.

    Args:
        path: a UTF-8 file, with or without a byte order mark.
        where: what an error calls the line of a number, such as `data.jsonl, row 3`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is not JSON.
    """
    with path.open("rb") as file:  # Bytes: text mode would also break lines at a bare carriage return.
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line.strip().decode("utf-8-sig"))
            except json.JSONDecodeError as error:
                raise ValueError(f"{where(number)}: not valid JSON: {error.msg} (column {error.colno}).") from error
            except (ValueError, RecursionError) as error:  # not UTF-8, a number of thousands of digits, deep nesting
                raise ValueError(f"{where(number)}: not readable as JSON: {error}.") from error
            yield number, value
