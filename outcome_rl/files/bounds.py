"""Bounds on files of others, so that none of them exhausts memory or hangs a command.

| what | bound |
|---|---|
| a line of JSON lines or CSV | `LINE` |
| a file of settings in YAML and a chat template, whose readers are slow | `SETTINGS` |
| a checkpoint's state, and a list of a folder's files | `STATE` |
| JSON that is no JSON lines, which is read whole | `WHOLE` |
| the contents of a compressed file: gzip or parquet | `UNPACKED` |
| one prompt by a chat template | `TEMPLATE_S` |

A larger one is refused in one line. Nesting has the bound of Python's own JSON reader.
"""

import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NoReturn

MIB = 2**20
LINE = 256 * MIB
SETTINGS = 1 * MIB
STATE = 64 * MIB
WHOLE = 1024 * MIB
UNPACKED = 65_536 * MIB
TEMPLATE_S = 10.0


def too_large(name: object, what: str, bound: int, fix: str) -> ValueError:
    """Return the error for what exceeds its bound."""
    return ValueError(f"{name}: {what} is larger than {bound // MIB:,} MiB, which is the most that is read. {fix}")


def bounded_lines(file: BinaryIO, name: object, total: int | None = None) -> Iterator[bytes]:
    """Yield the lines of a file with their ends.

    Args:
        name: of the file, for errors.
        total: bound of all lines together; None has none.

    Raises:
        ValueError: a line is longer than `LINE`, or all are than `total`.
    """
    size = 0
    while line := file.readline(LINE + 1):
        size += len(line)
        if len(line) > LINE:
            raise too_large(name, "a line", LINE, "Write one JSON object per line, with line ends between them")
        if total is not None and size > total:
            raise too_large(name, "its unpacked contents", total, "Unpack it, and divide it into several files")
        yield line


def read_state_file(path: Path) -> bytes:
    """Return the contents of a small file, such as settings.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is larger than `STATE`, or a pipe or a device, which may never end.
    """
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path} is no regular file; give one")
    with path.open("rb") as file:
        content = file.read(STATE + 1)
    if len(content) > STATE:
        raise too_large(path, "the file", STATE, "It was not written by outcome_rl; give another")
    return content


class _TimeIsOver(BaseException):
    """No Exception, which the statements might catch."""


@contextmanager
def time_limit(seconds: float, message: str) -> Iterator[None]:
    """Stop the statements of a block after a time, between two steps of the interpreter.

    Only the main thread has alarms: in another one, and on Windows, there is no limit.

    Raises:
        ValueError: the time is over; it has this message.
    """

    def stop(*_: object) -> NoReturn:
        raise _TimeIsOver

    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    except _TimeIsOver:
        raise ValueError(message) from None
