"""Execution of a plan: trainings in several processes of one thread at a time, continued where they stopped."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from experiments.paper.base import Base
from experiments.paper.plan import ALL, Cell, Method, Plan, Run
from outcome_rl.files.jsonl import read_rows
from outcome_rl.grpo.run.run_lock import Interrupted, collect_signals

TEST, VALIDATION = "test", "validation"


def method_of(run: Run) -> Method:
    return ALL[run.method]


def run_dir(folder: Path, run: Run) -> Path:
    return folder / "runs" / run.name


def steps_done(folder: Path, run: Run) -> int:
    path = run_dir(folder, run) / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


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


def train_in_a_process(settings: Sequence[str], log: Path, stop: Event) -> None:
    """Run `outcome-rl train --config toy` on one thread, with its output in a file; `stop` ends it with a checkpoint.

    Raises:
        ChildProcessError: it ended with an error; the message names the log.
    """
    command = [sys.executable, "-P", "-m", "outcome_rl.cli", "train", "--config", "toy", *settings]
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file, env=environment) as process:
        while process.poll() is None:
            if stop.wait(timeout=0.2):
                process.terminate()
                process.wait()
    if process.returncode != 0:
        raise ChildProcessError(f"{' '.join(command)} ended with status {process.returncode}; see {log}")


def carry_out(plan: Plan, base: Base, folder: Path, processes: int) -> None:
    """Prepare the inputs of the runs, and carry out the runs that are not done yet.

    Raises:
        ChildProcessError: a run failed; the others are finished first.
        Interrupted: SIGINT or SIGTERM came; the running trainings have written checkpoints.
        ValueError: a hard split is too small.
    """
    check_same_plan(plan, folder)
    prepare(plan, base, processes)
    runs = list(plan.runs())
    waiting = [run for run in runs if not is_done(folder, run, plan.steps)]
    stop = Event()
    with ThreadPoolExecutor(processes) as pool, collect_signals() as received:
        work = {
            run: pool.submit(
                train_in_a_process, overrides(plan, base, folder, run), folder / "logs" / f"{run.name}.log", stop
            )
            for run in waiting
        }
        finished = _watch(plan, folder, runs, work, received)
        if received:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise Interrupted(received[0], f"after {len(runs) - len(work) + finished} of {len(runs)} trainings")
    errors = [error for future in work.values() if (error := future.exception())]
    if errors:
        raise ChildProcessError(f"{len(errors)} of {len(runs)} runs failed, the first: {errors[0]}")


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


def _watch(
    plan: Plan, folder: Path, runs: Sequence[Run], work: dict[Run, Future[None]], received: Sequence[int]
) -> int:
    """Show progress until all runs end or a signal comes, and return the number of runs that ended.

    Progress is a table on a terminal, and one line per run elsewhere.
    """
    console, start = Console(), time.monotonic()
    finished: set[Run] = set()
    with Live(console=console, auto_refresh=False) as live:
        while len(finished) < len(work) and not received:
            time.sleep(1)
            for run, future in work.items():
                if future.done() and run not in finished:
                    finished.add(run)
                    outcome = "failed" if future.exception() else "done"
                    minutes = (time.monotonic() - start) / 60
                    if not console.is_terminal:
                        print(f"{len(finished)}/{len(work)} {run.name}: {outcome}, {minutes:.1f} min", flush=True)
            if console.is_terminal:
                live.update(progress_table(plan, folder, runs), refresh=True)
    return len(finished)


def progress_table(plan: Plan, folder: Path, runs: Sequence[Run]) -> Table:
    """Return a table of the fraction of the steps that is done, for each method and cell."""
    cells: list[Cell] = plan.cells()
    table = Table(
        "method", *(cell.name for cell in cells), title=f"{plan.name}: {plan.steps} steps, seeds {plan.seeds}"
    )
    for method in (*plan.methods, *plan.ablations):
        row = []
        for cell in cells:
            steps = [steps_done(folder, run) for run in runs if (run.cell, run.method) == (cell, method)]
            row.append(f"{sum(steps) / (plan.steps * len(steps)):.0%}" if steps else "")
        table.add_row(method, *row)
    return table


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
