"""`outcome-rl reproduce`: run the plan, collect the records, write the report."""

import json
import os
import time
from dataclasses import asdict
from pathlib import Path

from outcome_rl.driver.checkpoint import write_atomically
from outcome_rl.reproduce.plan import PLANS
from outcome_rl.reproduce.records import collect
from outcome_rl.reproduce.runs import carry_out, environment_of

RECORDS = "records.json"


def reproduce(plan_name: str, folder: Path, processes: int | None) -> None:
    """Run what is not done of a plan in `folder`, and write its records and report there.

    Raises:
        ChildProcessError: a run failed.
        ValueError: the folder holds another plan's runs, or a hard split is too small.
    """
    plan, start = PLANS[plan_name], time.monotonic()
    base = carry_out(plan, folder, processes or os.cpu_count() or 1)
    records = {"plan": asdict(plan), "environment": environment_of(start), **collect(plan, base, folder)}
    write_atomically(folder / RECORDS, json.dumps(records))
    report(folder)


def report(folder: Path) -> None:
    """Write the report of the records in `folder` beside them.

    Raises:
        FileNotFoundError: there are none.
    """
    from outcome_rl.reproduce.report import write_report

    records = json.loads((folder / RECORDS).read_text())
    for path in write_report(records, folder):
        print(f"wrote {path}")
