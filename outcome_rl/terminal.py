"""Terminal output of commands: progress on stderr, tables of metrics on stdout."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outcome_rl.analyze import Report
    from outcome_rl.outcomes.matcher import Progress


def only_our_progress() -> None:
    """Disable the progress bars of transformers, which would overlap with ours."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()


@contextmanager
def show_progress(label: str, unit: str) -> Iterator["Progress"]:
    """Show a progress bar on a terminal; elsewhere print plain lines, one at once and then one every ten seconds."""
    if not sys.stderr.isatty():
        yield _plain_progress(label, unit)
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_reports(reports: Mapping[str, "Report"]) -> None:
    """Print one table with the metrics of each file of samples."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_lines=True)
    table.add_column("file", ratio=1, overflow="fold")
    for heading in ("k", "pass@k", "best@k", "diff@k"):
        table.add_column(heading, justify="right", no_wrap=True)
    for file, report in reports.items():
        rates = [
            "\n".join(f"{value:.3f}" for value in at_k.values())
            for at_k in (report["pass_at_k"], report["best_at_k"], report["diff_at_k"])
        ]
        table.add_row(escape("\n".join(_facts(file, report))), "\n".join(report["pass_at_k"]), *rates)
    Console(emoji=False).print(table)


def _facts(file: str, report: "Report") -> list[str]:
    facts = [
        Path(file).name,
        f"{report['n_questions']} questions, {report['n_samples']} samples",
        f"{report['solved_fraction']:.1%} of questions solved",
        f"{report['distinct_per_question']:.2f} distinct answers per question",
        f"{report['no_answer_rate']:.1%} of samples without answer",
        f"{report['unresolved']} comparisons unresolved",
    ]
    if report["unscored_questions"]:
        facts.append(f"{len(report['unscored_questions'])} not scored: unusable gold")
    return facts


def _plain_progress(label: str, unit: str) -> "Progress":
    print(f"{label} ...", file=sys.stderr, flush=True)
    shown_at = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= 10:
            shown_at = time.monotonic()
            print(f"{label}: {done} of {total} {unit}", file=sys.stderr, flush=True)

    return show
