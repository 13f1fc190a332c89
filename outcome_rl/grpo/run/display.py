"""Console output of a run: a progress bar on a terminal, and plain lines elsewhere."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from outcome_rl.isolation.closing import Closing
from outcome_rl.outcomes.kinds import Progress as Report
from outcome_rl.terminal.streams import lasting
from outcome_rl.terminal.text import printable

_PLAIN_LINES = 30  # approximate number of step lines of a run without a terminal


class Display(Closing):
    """Progress of one run, from its first second on; a context manager, which ends the progress bar."""

    def __init__(self, *, quiet: bool = False) -> None:
        stdout = lasting(sys.stdout)
        self.console = Console(file=stdout, highlight=False, emoji=False, soft_wrap=not stdout.isatty(), quiet=quiet)
        self.bar = Progress(
            TextColumn("{task.description}"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task: TaskID | None = None
        self._total = self._every = 1

    def close(self) -> None:
        self.bar.stop()

    def begin(self, total_steps: int, first_step: int) -> None:
        """Show the progress bar of a run whose first steps are done."""
        self._total, self._every = total_steps, max(1, total_steps // _PLAIN_LINES)
        self._task = self.bar.add_task("step", total=total_steps, completed=first_step, facts="")
        self.bar.start()

    def say(self, text: str) -> None:
        self.console.print(printable(text), markup=False)

    def phase(self, text: str) -> None:
        """Announce a phase that may take long."""
        self.say(f"{text} ...")

    @contextmanager
    def sampling(self) -> Iterator[Report]:
        """Show a second bar, of the responses of an evaluation, until it ends; facts of the last step make room."""
        if self._task is not None:
            self.bar.update(self._task, facts="")
        task = self.bar.add_task("responses", total=None, facts="", visible=False)
        try:
            yield lambda done, total: self.bar.update(task, completed=done, total=total, visible=True)
        finally:
            self.bar.remove_task(task)

    def step(self, row: Mapping[str, Any]) -> None:
        """Show a row of the metrics; a bar has room for two facts."""
        facts = [
            f"correct {row['outcomes/correct_rate']:.3f}",
            f"solved {row['exploration/solved_fraction']:.1%}",
            f"distinct {row['exploration/distinct_answers']:.2f}",
            f"{row['perf/tokens_per_s']:,.0f} tok/s",
        ]
        if self._task is not None:
            self.bar.update(self._task, completed=row["step"], facts="  ".join(facts[:2]))
        if self.bar.disable and (row["step"] % self._every == 0 or row["step"] in (1, self._total)):
            self.say(f"step {row['step']}/{self._total}  {'  '.join(facts)}")

    def evaluation(self, row: Mapping[str, Any]) -> None:
        """Show one evaluation as a line."""
        largest = max(row["pass_at_k"], key=int)
        facts = [
            f"pass@1 {row['pass_at_k']['1']:.3f}",
            f"pass@{largest} {row['pass_at_k'][largest]:.3f}",
            f"diff@{largest} {row['diff_at_k'][largest]:.2f}",
            f"no answer {row['no_answer_rate']:.1%}",
        ]
        self.say(f"step {row['step']}  {row['dataset']}: {'  '.join(facts)}")
