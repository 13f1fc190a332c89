"""Commands with their arguments, for argparse."""

import argparse
import math
import re
import textwrap
from collections.abc import Callable
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeVar

Run = TypeVar("Run", bound=Callable[..., None])
Argument = Callable[[argparse.ArgumentParser], object]
COMMANDS: list[tuple[str, str, str, tuple[Argument, ...], Callable[..., None]]] = []  # as `command` gets them


class HelpFormatter(argparse.HelpFormatter):
    """Help whose paragraphs fill the terminal; lists and examples, which are indented, stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.split("\n\n")
        return "\n\n".join(one if "\n  " in one else textwrap.fill(one, width) for one in paragraphs)


def at_least_one(text: str) -> int:
    """Parse a positive integer, as the type of an argparse option."""
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least 1; got {text!r}")
    return int(text)


def finite(text: str) -> float:
    """Parse a finite number."""
    if not math.isfinite(number := float(text)):
        raise argparse.ArgumentTypeError(f"must be finite; got {text!r}")
    return number


def expression(text: str) -> str:
    """Check a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"must be a regular expression; got {text!r}: {error}") from error
    return text


def named_path(text: str) -> Path:
    """Parse a path; an empty one, as of a variable that is not set, is no name of the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("must be a path; got an empty text")
    return Path(text)


def argument(*names: str, **options: Any) -> Argument:
    """Return a function that adds this argument to a parser."""
    return methodcaller("add_argument", *names, **options)


def command(name: str, help: str, example: str, *arguments: Argument) -> Callable[[Run], Run]:
    """Make a function a command, with an example call, arguments, and its docstring as the description."""

    def registered(run: Run) -> Run:
        COMMANDS.append((name, help, example, arguments, run))
        return run

    return registered
