"""Simulate the paper's bandits: regret against T, K, m and rho next to the bounds, as tables, PNG and JSON.

python -m experiments.bandits            # about half a minute
python -m experiments.bandits --check    # test the statements of the README instead
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from experiments.bandits.checks import run_checks
from experiments.bandits.sweeps import sweep, table
from outcome_rl.terminal.text import errors_on_one_line

RESULTS = Path(__file__).parent / "results"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sweep, or with `--check` the checks; return the exit status, 1 if a check failed."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.bandits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="test the statements; exit status 1 if one fails")
    parser.add_argument("--seeds", type=int, help="runs of each simulation (200; 2000 with --check)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of bandits.json and bandits.png")
    options = parser.parse_args(argv)
    with errors_on_one_line():
        if options.check:
            return 0 if check(options.seeds or 2000) else 1
        run(options.seeds or 200, options.out)
    return 0


def check(seeds: int) -> bool:
    """Print every check as a table; return whether all of them passed."""
    checks = list(run_checks(seeds))
    shown = Table("statement", "expected", "seen", "", box=box.SIMPLE, show_lines=True)
    for each in checks:
        shown.add_row(each.statement, each.expected, each.seen, each.verdict)
    failed = sum(not each.passed for each in checks)
    Console().print(shown, f"{len(checks)} checks with {seeds} seeds, {failed} failed", markup=False, highlight=False)
    return failed == 0


def run(seeds: int, folder: Path) -> None:
    """Print the figures, and write bandits.json and bandits.png into `folder`."""
    from bench.result_file import write_result  # loads torch, which the checks do without
    from experiments.bandits.plots import plot

    panels = sweep(seeds, progress=lambda title: print(f"{title}: done", file=sys.stderr, flush=True))
    written, picture = write_result(folder, "bandits", {"seeds": seeds}, panels), folder / "bandits.png"
    plot(panels, picture)
    print(f"{table(panels)}\n\nwrote {written}\nwrote {picture}")


if __name__ == "__main__":
    sys.exit(main())
