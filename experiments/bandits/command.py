"""What `outcome-rl bandits` prints and writes."""

import sys

from rich import box
from rich.console import Console
from rich.table import Table

from experiments.bandits.checks import run_checks
from experiments.bandits.sweeps import sweep, table


def check(seeds: int) -> bool:
    """Print every check as a table; whether all of them passed."""
    checks = list(run_checks(seeds))
    shown = Table("statement", "expected", "seen", "", box=box.SIMPLE, show_lines=True)
    for each in checks:
        shown.add_row(each.statement, each.expected, each.seen, each.verdict)
    failed = sum(not each.passed for each in checks)
    Console().print(shown, f"{len(checks)} checks with {seeds} seeds, {failed} failed", markup=False, highlight=False)
    return failed == 0


def run(seeds: int) -> None:
    """Print the figures, and write bandits.json and bandits.png."""
    from experiments.bandits.plots import plot
    from outcome_rl.bench import record  # loads torch, which the checks do without

    panels = sweep(seeds, progress=lambda title: print(f"{title}: done", file=sys.stderr, flush=True))
    written, picture = record.write_result("bandits", {"seeds": seeds}, panels), record.OUTPUT / "docs" / "bandits.png"
    plot(panels, picture)
    print(f"{table(panels)}\n\nwrote {written}\nwrote {picture}")
