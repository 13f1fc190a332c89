"""records.json: the data of the runs that the report needs, so that it can be written again without the runs."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.paper.base import Base, Samples, read_problems
from experiments.paper.plan import Cell, Plan, Run
from experiments.paper.runs import is_done, run_dir
from outcome_rl.exploration.explorer import Explorer
from outcome_rl.files.jsonl import read_rows
from outcome_rl.grpo.run.checkpoint import latest_checkpoint
from outcome_rl.outcomes.keys import NO_ANSWER

CURVES = {
    "solved": "exploration/solved_fraction",
    "distinct": "exploration/distinct_answers",
    "distinct_unsolved": "exploration/distinct_answers_unsolved",
    "entropy_correct": "entropy/correct",
    "entropy_incorrect": "entropy/incorrect",
    "entropy_all": "entropy/all",
    "group_solved": "outcomes/distinct_in_group_solved",
    "group_unsolved": "outcomes/distinct_in_group_unsolved",
    "group_once_solved": "outcomes/distinct_in_group_once_solved",
    "group_never_solved": "outcomes/distinct_in_group_never_solved",
    "group_all": "outcomes/distinct_in_group",
    "no_answer": "outcomes/no_answer_rate",
}


def collect(plan: Plan, base: Base, folder: Path) -> dict[str, Any]:
    """Return the records of the cells whose runs are all done."""
    runs = list(plan.runs())
    left_out = dict.fromkeys(run.cell for run in runs if not is_done(folder, run, plan.steps))
    return {
        "cells": [_cell(plan, base, cell) for cell in plan.cells() if cell not in left_out],
        "runs": [_run(base, folder, run) for run in runs if run.cell not in left_out],
        "left_out": [cell.name for cell in left_out],
    }


def _cell(plan: Plan, base: Base, cell: Cell) -> dict[str, Any]:
    problems = read_problems(base.training_file(cell))
    epoch = len(problems) // plan.batch
    return {
        **cell._asdict(),
        "questions": len(problems),
        **{
            name: [_base(base.samples(cell, seed), plan.steps, epoch, n) for seed in plan.seeds]
            for name, n in plan.base_samples().items()
        },
    }


def _base(samples: Samples, total: int, epoch: int, n: int) -> dict[str, Any]:
    """Return the curves of sampling from the base policy, with n more samples per question after each epoch."""
    steps = range(epoch, total + 1, epoch)
    curve = [_coverage(samples, n * step // epoch) for step in steps]
    solved, distinct = curve[-1]
    return {
        "steps": list(steps),
        "solved": [float(solved.mean()) for solved, _ in curve],
        "distinct": [float(distinct.mean()) for _, distinct in curve],
        "distinct_unsolved": [_mean(distinct[~solved]) for solved, distinct in curve],
        "questions_solved": solved.tolist(),
        "questions_distinct": distinct.tolist(),
    }


def _coverage(samples: Samples, count: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return, for the first samples of each question, whether one is correct, and the number of different answers."""
    answers = [len(set(row) - {NO_ANSWER}) for row in samples.keys[:, :count].tolist()]
    return np.array(samples.correct[:, :count].any(axis=1)), np.array(answers)


def _run(base: Base, folder: Path, run: Run) -> dict[str, Any]:
    place = run_dir(folder, run)
    metrics, evaluations = (list(read_rows(place / f"{stream}.jsonl")) for stream in ("metrics", "evaluations"))
    checkpoint = latest_checkpoint(place / "checkpoints")
    assert checkpoint is not None
    problems = read_problems(base.training_file(run.cell))
    explorer = Explorer.load(checkpoint / "exploration")
    solved = explorer.solved
    answers = [[answer for answer, _ in explorer.seen(problem.id) if answer is not None] for problem in problems]
    return {
        **run.cell._asdict(),
        "method": run.method,
        "seed": run.seed,
        "curves": {name: [row.get(key) for row in metrics] for name, key in CURVES.items()},
        "evaluations": [
            {key: row[key] for key in ("step", "dataset", "pass_at_k", "diff_at_k", "no_answer_rate")}
            for row in evaluations
        ],
        "questions_solved": [solved.get(problem.id, False) for problem in problems],
        "questions_distinct": [len(own) for own in answers],
    }


def _mean(values: NDArray[np.int64]) -> float | None:
    return float(np.mean(values)) if len(values) else None
