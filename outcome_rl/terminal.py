"""Text that a terminal may show, errors on one line, and commands with their arguments."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import methodcaller
from typing import Any, TypeVar
from unicodedata import category

from outcome_rl.extras import missing_extra

# Categories of Unicode: controls (ESC and the 8-bit ones start commands to a terminal), formats (they hide text or show
# it in another order), separators of lines, and surrogates, which no encoding can write.
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
Run = TypeVar("Run", bound=Callable[..., None])
Argument = Callable[[argparse.ArgumentParser], object]
COMMANDS: list[tuple[str, str, str, tuple[Argument, ...], Callable[..., None]]] = []  # as `command` gets them


def printable(text: str) -> str:
    """Return text of a model, a file or a file name with every control and format character but newline as U+FFFD."""
    if text.isprintable():
        return text
    return "".join("\ufffd" if category(c) in _HIDDEN and c != "\n" else c for c in text)


@contextmanager
def errors_on_one_line(*, debug: bool = False) -> Iterator[None]:
    """Print errors in files, options, data and installation as `error: ...` and exit with status 2, and end with status
    130 at Ctrl-C, or let them through with `debug`.
    """
    try:
        yield
    except KeyboardInterrupt:
        if debug:
            raise
        print("interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except (ValueError, OSError, FloatingPointError, ModuleNotFoundError) as error:
        message = missing_extra(error) if isinstance(error, ModuleNotFoundError) else _one_line(error)
        if debug or message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        raise SystemExit(2) from error


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return printable(f"{error.filename}: {error.strerror}")
    return printable(" ".join(str(error).split()))


def at_least_one(text: str) -> int:
    """Parse a positive integer, as the type of an argparse option."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least 1; got {text!r}")
    return int(text)


def argument(*names: str, **options: Any) -> Argument:
    """Return a function that adds this argument to a parser."""
    return methodcaller("add_argument", *names, **options)


def command(words: str, help: str, example: str, *arguments: Argument) -> Callable[[Run], Run]:
    """Make a function a command, with an example call, arguments, and its docstring as the description."""

    def registered(run: Run) -> Run:
        COMMANDS.append((words, help, example, arguments, run))
        return run

    return registered
