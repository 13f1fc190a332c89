"""Re-run the paper in miniature and write a report with a verdict for each of its claims.

The same command continues a plan that was stopped, and repeats nothing.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from experiments.paper.base import Base
from experiments.paper.plan import HELP, PLANS
from experiments.paper.records import collect
from experiments.paper.runs import carry_out, environment_of
from outcome_rl.files.atomic import write_text
from outcome_rl.terminal.arguments import at_least_one
from outcome_rl.terminal.text import errors_on_one_line

RECORDS = "records.json"


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.paper", description=__doc__)
    parser.add_argument("plan", choices=PLANS, help=" ".join(f"{name}: {text}." for name, text in HELP.items()))
    parser.add_argument("--report", action="store_true", help="only write the report of the folder's records again")
    parser.add_argument("--out", type=Path, help="folder of runs, records and report (runs/paper-PLAN)")
    parser.add_argument("--processes", type=at_least_one, help="trainings at a time, one thread each (one per core)")
    parser.add_argument(
        "--seeds", type=at_least_one, help="number of the plan's seeds to run; a later call can add more (all)"
    )
    parser.add_argument("--tables", type=at_least_one, help="the same for the plan's rule tables (all)")
    options = parser.parse_args(argv)
    folder = options.out or Path("runs") / f"paper-{options.plan}"
    with errors_on_one_line():
        if options.report:
            report(folder)
            return 0
        reproduce(options.plan, folder, options.processes, options.seeds, options.tables)
    return 0


def reproduce(
    plan_name: str, folder: Path, processes: int | None, seeds: int | None = None, tables: int | None = None
) -> None:
    """Run the part of a plan that is not done yet, and write records and report of the cells that are complete.

    Args:
        plan_name: a key of `PLANS`.
        folder: all files of the plan are below it.
        processes: trainings at a time; None is one per core.
        seeds: number of the plan's seeds to run, from the first; None is all of them. A later call may add others.
        tables: the same for the rule tables.

    Raises:
        ChildProcessError: a run failed.
        KeyboardInterrupt: Ctrl-C was pressed; the same call continues.
        ValueError: the folder holds another plan's runs, or a hard split is too small.
    """
    plan, start = PLANS[plan_name], time.monotonic()
    plan = replace(plan, seeds=plan.seeds[:seeds], instances=plan.instances[:tables])
    base = Base(plan, folder)
    error: BaseException | None = None
    try:
        carry_out(plan, base, folder, processes or os.cpu_count() or 1)
    except (ChildProcessError, KeyboardInterrupt) as some_left:
        error = some_left
    records = {"plan": asdict(plan), "environment": environment_of(start), **collect(plan, base, folder)}
    if records["cells"]:
        write_text(folder / RECORDS, json.dumps(_rounded(records), separators=(",", ":")))
        report(folder)
    if error is not None:
        raise error


def report(folder: Path) -> None:
    """Write the report of the records in `folder` next to them.

    Raises:
        FileNotFoundError: there are none.
    """
    from experiments.paper.report import write_report

    records = json.loads((folder / RECORDS).read_text())
    for path in write_report(records, folder):
        print(f"wrote {path}")


def _rounded(record: Any) -> Any:
    """Drop what no table or figure shows: digits after the sixth, and the letters of true and false."""
    if isinstance(record, bool):
        return int(record)
    if isinstance(record, float):
        return round(record, 6)
    if isinstance(record, dict):
        return {key: _rounded(value) for key, value in record.items()}
    return [_rounded(value) for value in record] if isinstance(record, list) else record


if __name__ == "__main__":
    sys.exit(main())
