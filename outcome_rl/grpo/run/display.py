"""Console output of a run: a progress bar on a terminal, plain lines elsewhere, and tables at the end."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Self

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from outcome_rl.terminal import printable

_PLAIN_LINES = 30  # approximate number of step lines of a run without a terminal


class Display:
    """Progress of one run; a context manager, which stops the progress bar."""

    def __init__(self, total_steps: int, first_step: int, *, quiet: bool = False) -> None:
        self.console = Console(highlight=False, emoji=False, soft_wrap=not sys.stdout.isatty(), quiet=quiet)
        self._total = total_steps
        self._every = max(1, total_steps // _PLAIN_LINES)
        self._bar = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total_steps, completed=first_step, facts="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        self.console.print(printable(text), markup=False)

    def step(self, row: Mapping[str, Any]) -> None:
        """Show a row of the metrics."""
        facts = (
            f"correct {row['outcomes/correct_rate']:.3f}  solved {row['exploration/solved_fraction']:.1%}  "
            f"distinct {row['exploration/distinct_answers']:.2f}  {row['perf/tokens_per_s']:,.0f} tok/s"
        )
        self._bar.update(self._task, completed=row["step"], facts=facts)
        if self._bar.disable and (row["step"] % self._every == 0 or row["step"] in (1, self._total)):
            self.say(f"step {row['step']}/{self._total}  {facts}")

    def evaluation(self, row: Mapping[str, Any]) -> None:
        """Show one evaluation as a line."""
        largest = max(row["pass_at_k"], key=int)
        self.say(
            f"step {row['step']}  {row['dataset']}: pass@1 {row['pass_at_k']['1']:.3f}  "
            f"pass@{largest} {row['pass_at_k'][largest]:.3f}  diff@{largest} {row['diff_at_k'][largest]:.2f}  "
            f"no answer {row['no_answer_rate']:.1%}"
        )

    def samples(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Show sample completions below their questions, with reward, count, bonus and advantage."""
        table = Table(
            title=f"samples of step {rows[0]['step']}", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
        )
        table.add_column("sample", overflow="fold")
        for name in ("gold", "outcome"):
            table.add_column(name, overflow="fold", max_width=12)
        for name in ("reward", "count", "bonus", "advantage"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(
                f"[dim]{escape(_shortened(row['question']))}[/]\n{escape(_shortened(row['completion'], end=True))}",
                escape(_shortened(row["gold"])),
                "none" if row["outcome"] is None else escape(_shortened(row["outcome"])),
                f"{row['reward']:.3g}",
                str(row["count"]),
                f"{row['bonus']:+.3f}",
                f"{row['advantage']:+.3f}",
            )
        self.console.print(table)

    def comparison(self, base: Mapping[str, Any], trained: Mapping[str, Any]) -> None:
        """Show base against trained policy on one data set."""
        self.say(f"{trained['dataset']}: {trained['n_questions']} questions, base against step {trained['step']}")
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("")
        for name in ("base", "trained", "change"):
            table.add_column(name, justify="right")
        for metric, label, digits in (("pass_at_k", "pass@", 3), ("diff_at_k", "diff@", 2)):
            for k in trained[metric]:
                before, after = base[metric][k], trained[metric][k]
                table.add_row(
                    f"{label}{k}", f"{before:.{digits}f}", f"{after:.{digits}f}", f"{after - before:+z.{digits}f}"
                )
            table.add_section()
        table.add_row(
            "no answer",
            f"{base['no_answer_rate']:.1%}",
            f"{trained['no_answer_rate']:.1%}",
            f"{trained['no_answer_rate'] - base['no_answer_rate']:+z.1%}",
        )
        self.console.print(table)


def _shortened(text: str, limit: int = 120, *, end: bool = False) -> str:
    """Return at most `limit` characters on one line, from the start or from the end."""
    line = printable(" ".join(text.split()))
    if len(line) <= limit:
        return line
    return "…" + line[-limit:] if end else line[:limit] + "…"
