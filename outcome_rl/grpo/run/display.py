"""Console output of a run: a progress bar on a terminal, and plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from outcome_rl.outcomes.kinds import Progress as Report
from outcome_rl.terminal.streams import lasting
from outcome_rl.terminal.text import printable

_PLAIN_LINES = 30  # approximate number of step lines of a run without a terminal
_BAR, _TIME_LEFT = 8, 7  # characters that the bar needs at least, and the time left
_SILENCE_S = 30.0  # after which a run without a terminal reports its phase


class Display:
    """Progress of one run, from its first second on; a context manager, which ends the progress bar."""

    def __init__(self, *, quiet: bool = False, silence_s: float = _SILENCE_S) -> None:
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
        self._phase, self._phase_began = "starting", time.monotonic()
        self._silence_s = silence_s
        self._ended = threading.Event()
        self._heartbeat = threading.Thread(target=self._beat, name="display", daemon=True)

    def __enter__(self) -> Self:
        if not (self.console.is_terminal or self.console.quiet):
            self._heartbeat.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self.bar.stop()

    def begin(self, total_steps: int, first_step: int) -> None:
        """Show the progress bar of a run whose first steps are done."""
        self._total, self._every = total_steps, max(1, total_steps // _PLAIN_LINES)
        self._task = self.bar.add_task("step", total=total_steps, completed=first_step, facts="")
        self.bar.start()

    def say(self, text: str) -> None:
        self.console.print(printable(text), markup=False)

    def phase(self, text: str, *, show: bool = True) -> None:
        """Announce a phase; after a long silence it is repeated."""
        if show:
            self.say(f"{text} ...")
        self._phase, self._phase_began = text, time.monotonic()  # now the heartbeat may say it again

    def _beat(self) -> None:
        while not self._ended.wait(self._silence_s):
            seconds = time.monotonic() - self._phase_began
            if seconds >= self._silence_s:
                self.say(f"{self._phase} ... {seconds:.0f} s so far")

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
        """Show a row of the metrics; a bar that is narrow keeps the number of steps and the time left."""
        facts = [
            f"correct {row['outcomes/correct_rate']:.3f}",
            f"solved {row['exploration/solved_fraction']:.1%}",
            f"distinct {row['exploration/distinct_answers']:.2f}",
            f"{row['perf/tokens_per_s']:,.0f} tok/s",
        ]
        if self._task is not None:
            taken = len(f"step {self._total}/{self._total}  ") + _BAR + len("  ") + _TIME_LEFT
            self.bar.update(self._task, completed=row["step"], facts=self._fitting(facts, taken))
        if self.bar.disable and (row["step"] % self._every == 0 or row["step"] in (1, self._total)):
            self.say(f"step {row['step']}/{self._total}  {'  '.join(facts)}")

    def evaluation(self, row: Mapping[str, Any]) -> None:
        """Show one evaluation as a line."""
        largest = max(row["pass_at_k"], key=int)
        start = f"step {row['step']}  {row['dataset']}: "
        facts = [
            f"pass@1 {row['pass_at_k']['1']:.3f}",
            f"pass@{largest} {row['pass_at_k'][largest]:.3f}",
            f"diff@{largest} {row['diff_at_k'][largest]:.2f}",
            f"no answer {row['no_answer_rate']:.1%}",
        ]
        self.say(start + self._fitting(facts, len(start)))

    def _fitting(self, facts: Sequence[str], taken: int) -> str:
        """Return the first facts, as many as fit on a line of a terminal beside the characters that are taken."""
        shown = "  ".join(facts)
        if self.console.is_terminal and len(facts) > 1 and taken + len(shown) > self.console.width:
            return self._fitting(facts[:-1], taken)
        return shown
