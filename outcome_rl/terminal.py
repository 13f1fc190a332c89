"""Parts that all commands share: errors on one line, progress on stderr, tables on stdout."""

import argparse
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from outcome_rl.extras import missing_extra

if TYPE_CHECKING:
    from outcome_rl.analyze import Report
    from outcome_rl.outcomes.comparisons import Progress


# Control characters (ESC and the 8-bit ones start commands to a terminal) and characters that no encoding can write.
_UNPRINTABLE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def printable(text: str) -> str:
    """Return text of a model, a file or a file name with every control character but newline replaced by U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", text)


@contextmanager
def errors_on_one_line(*, debug: bool = False) -> Iterator[None]:
    """Print errors in files, options, data and installation as `error: ...` and exit with status 2, or let them through
    with `debug`.
    """
    try:
        yield
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
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def only_our_progress() -> None:
    """Disable the progress bars of transformers, which would overlap with ours."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()


@contextmanager
def show_progress(label: str, unit: str) -> Iterator["Progress"]:
    """Show a line that counts up on a terminal; elsewhere print lines, one at once and then one every ten seconds."""
    in_place, label = sys.stderr.isatty(), printable(label)
    begin, end, seconds = ("\r", "\x1b[K", 0.1) if in_place else ("", "\n", 10.0)
    shown_at = time.monotonic()
    print(f"{begin}{label} ...", end=end, file=sys.stderr, flush=True)

    def show(done: int, total: int) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= seconds:
            shown_at = time.monotonic()
            print(f"{begin}{label}: {done} of {total} {unit}", end=end, file=sys.stderr, flush=True)

    yield show
    if in_place:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> None:
    """Print rows of cells in columns, aligned to the right for `numbers`, and an empty line after them."""
    table = [[printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (cell.rjust(width) if numbers else cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    print()


def print_reports(reports: Mapping[str, "Report"]) -> None:
    """Print the metrics of each file of samples: facts within the terminal's width, and a table over k."""
    columns = shutil.get_terminal_size().columns
    for file, report in reports.items():
        print(textwrap.fill("; ".join(_facts(file, report)), columns))
        curves = [report["pass_at_k"], report["best_at_k"], report["diff_at_k"]]
        rows = [[k, *(f"{curve[k]:.3f}" for curve in curves)] for k in report["pass_at_k"]]
        print_table(["k", "pass@k", "best@k", "diff@k"], rows, numbers=True)
        for sample in report["disagreements"]:
            ours, theirs = ("correct", "wrong") if sample["correct"] else ("wrong", "correct")
            answer = "no answer" if sample["answer"] is None else f"answer {sample['answer']}"
            text = (
                f"question {sample['question_id']}, {answer}: {theirs} by the file, {ours} here (gold {sample['gold']})"
            )
            print(printable(" ".join(text.split())))
        if report["disagreements"]:
            print()


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 question" and "2 questions"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _facts(file: str, report: "Report") -> list[str]:
    facts = [
        f"{printable(Path(file).name)}: {counted(report['n_questions'], 'question')}, "
        f"{counted(report['n_samples'], 'sample')}",
        f"{report['solved_fraction']:.1%} of questions solved",
        f"{report['distinct_per_question']:.2f} distinct answers per question",
        f"{report['no_answer_rate']:.1%} of samples without answer",
        f"{counted(report['unresolved'], 'comparison')} unresolved",
    ]
    if report["labelled"]:
        share = report["agreeing"] / report["labelled"]
        verdicts = counted(report["labelled"], "verdict")
        facts.append(f"agrees with {share:.1%} of the file's own {verdicts} (rules: docs/outcomes.md)")
    if report["unscored_questions"]:
        facts.append(f"{len(report['unscored_questions'])} not scored: unusable gold")
    return facts
