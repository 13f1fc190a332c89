"""`outcome-rl reproduce`: run the plan, collect the records, write the report."""

import json
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from experiments.paper.base import Base
from experiments.paper.plan import PLANS
from experiments.paper.records import collect
from experiments.paper.runs import carry_out, environment_of
from outcome_rl.files import write_text
from outcome_rl.grpo.run.run_lock import Interrupted

RECORDS = "records.json"


def reproduce(plan_name: str, folder: Path, processes: int | None, seeds: int | None = None) -> None:
    """Run what is not done of a plan in `folder`, and write records and report of the cells that are complete.

    Args:
        plan_name: a key of `PLANS`.
        folder: of all that is made.
        processes: trainings at a time; None is one a core.
        seeds: only the first so many of the plan; None is all of them. A later call may add the others.

    Raises:
        ChildProcessError: a run failed.
        Interrupted: a signal came; the same call continues.
        ValueError: the folder holds another plan's runs, or a hard split is too small.
    """
    plan, start = PLANS[plan_name], time.monotonic()
    plan = replace(plan, seeds=plan.seeds[:seeds])
    base = Base(plan, folder)
    error: Exception | None = None
    try:
        carry_out(plan, base, folder, processes or os.cpu_count() or 1)
    except (ChildProcessError, Interrupted) as some_left:
        error = some_left
    records = {"plan": asdict(plan), "environment": environment_of(start), **collect(plan, base, folder)}
    if records["cells"]:
        write_text(folder / RECORDS, json.dumps(_short(records), separators=(",", ":")))
        report(folder)
    if error is not None:
        raise error


def _short(record: Any) -> Any:
    """A record without the digits that no table or figure shows: a third of the file."""
    if isinstance(record, float):
        return round(record, 6)
    if isinstance(record, dict):
        return {key: _short(value) for key, value in record.items()}
    return [_short(value) for value in record] if isinstance(record, list) else record


def report(folder: Path) -> None:
    """Write the report of the records in `folder` beside them.

    Raises:
        FileNotFoundError: there are none.
    """
    from experiments.paper.report import write_report

    records = json.loads((folder / RECORDS).read_text())
    for path in write_report(records, folder):
        print(f"wrote {path}")
