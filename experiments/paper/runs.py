"""Execution of a plan: trainings in several processes of one thread at a time, continued where they stopped."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from experiments.paper.base import Base
from experiments.paper.plan import ALL, Cell, Method, Plan, Run
from outcome_rl.files.jsonl import read_rows

TEST, VALIDATION = "test", "validation"


def method_of(run: Run) -> Method:
    return ALL[run.method]


def run_dir(folder: Path, run: Run) -> Path:
    return folder / "runs" / run.name


def is_done(folder: Path, run: Run, steps: int) -> bool:
    """Return whether the run has written its last evaluation, which ends it."""
    rows = read_rows(run_dir(folder, run) / "evaluations.jsonl")
    return any(row["step"] == steps and row["dataset"] == TEST for row in rows)


def overrides(plan: Plan, base: Base, folder: Path, run: Run) -> list[str]:
    """Return the settings of a run that override the toy preset."""
    instance = run.cell.instance
    validation = base.problems(instance, "validation", plan.validation_questions)
    test = base.problems(instance, "test", plan.test_questions)
    return [
        f"model.path={base.policy(instance, run.cell.policy)}",
        "model.device=auto",
        f"data.train_files={base.training_file(run.cell)}",
        f"data.val_files=[{validation},{test}]",
        f"data.test_files={test}",
        f"data.train_batch_size={plan.batch}",
        f"rollout.n={plan.n}",
        f"rollout.val_kwargs.n={plan.test_samples}",
        f"trainer.total_training_steps={plan.steps}",
        f"trainer.test_freq={plan.test_freq}",
        f"trainer.save_freq={plan.test_freq}",
        "trainer.max_ckpt_to_keep=1",
        f"trainer.seed={run.seed}",
        f"trainer.default_local_dir={folder / 'runs'}",
        f"trainer.experiment_name={run.name}",
        *method_of(run).overrides(run.cell.split),
    ]


def train_in_a_process(settings: Sequence[str], log: Path) -> None:
    """Run `outcome-rl train --config toy` on one thread, with its output in a file.

    Raises:
        ChildProcessError: it ended with an error; the message names the log.
    """
    command = [sys.executable, "-P", "-m", "outcome_rl.cli", "train", "--config", "toy", *settings]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        done = subprocess.run(
            command, stdout=file, stderr=file, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
        )
    if done.returncode != 0:
        raise ChildProcessError(f"{' '.join(command)} ended with status {done.returncode}; see {log}")


def carry_out(plan: Plan, base: Base, folder: Path, processes: int) -> None:
    """Prepare the inputs of the runs, and carry out the runs that are not done yet, with a line for each.

    Raises:
        ChildProcessError: a run failed; the others are finished first.
        KeyboardInterrupt: Ctrl-C reached the running trainings, too, which have written checkpoints.
        ValueError: a hard split is too small.
    """
    check_same_plan(plan, folder)
    prepare(plan, base, processes)
    logs, start = folder / "logs", time.monotonic()
    waiting = [run for run in plan.runs() if not is_done(folder, run, plan.steps)]
    with ThreadPoolExecutor(processes) as pool:
        work = {
            pool.submit(train_in_a_process, overrides(plan, base, folder, run), logs / f"{run.name}.log"): run
            for run in waiting
        }
        try:
            for number, future in enumerate(as_completed(work), 1):
                outcome, minutes = "failed" if future.exception() else "done", (time.monotonic() - start) / 60
                print(f"{number}/{len(work)} {work[future].name}: {outcome}, {minutes:.1f} min", flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    errors = [error for future in work if (error := future.exception())]
    if errors:
        raise ChildProcessError(f"{len(errors)} of {len(work)} runs failed, the first: {errors[0]}")


def prepare(plan: Plan, base: Base, processes: int) -> None:
    """Make base policies one by one, then questions and base samples, several cells at a time."""
    for instance, policy in dict.fromkeys((cell.instance, cell.policy) for cell in plan.cells()):
        base.policy(instance, policy)
    groups: dict[tuple[int, str], list[Cell]] = {}
    for cell in plan.cells():
        if not base.is_prepared(cell):
            groups.setdefault((cell.instance, cell.policy), []).append(cell)
    if processes == 1 or len(groups) < 2:
        for cells in groups.values():
            base.prepare(cells)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(base.prepare, groups.values()))


def check_same_plan(plan: Plan, folder: Path) -> None:
    """Refuse the folder of another plan, whose data and runs would be mixed with this one's.

    Seeds and rule tables may differ: a later call may add others.

    Raises:
        ValueError: the folder has another plan.
    """
    path, text = folder / "plan.json", json.dumps({**asdict(plan), "seeds": None, "instances": None}, indent=2) + "\n"
    if path.exists() and path.read_text() != text:
        raise ValueError(f"{folder} holds the runs of another plan (see {path}); choose another --out")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def environment_of(start: float) -> dict[str, Any]:
    """Return device, versions, commit and date of the runs."""
    from bench.result_file import commit
    from outcome_rl.environment import describe_environment

    environment = describe_environment()
    return {
        "devices": environment["devices"],
        "versions": environment["versions"],
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
        "minutes_of_this_call": round((time.monotonic() - start) / 60, 1),
    }
