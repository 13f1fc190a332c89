"""Records of a plan that was never run, with made-up metrics, for tests of the report."""

import random
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from experiments.paper.plan import QUICK, Plan, Run

QUESTIONS = 12
# (method, name of the figure, random number in [0, 1)) -> the figure
Figure = Callable[[str, str, float], float]

PLAN = replace(QUICK, steps=8, test_freq=4, ablations=("ucb_con-c-1",), batch=4, train_questions=QUESTIONS)


def noise(method: str, name: str, chance: float) -> float:
    return chance


def records(figure: Figure = noise, plan: Plan = PLAN) -> dict[str, Any]:
    """Return records like those of `records.collect`, with rates and curves made by `figure`."""
    rng = random.Random(0)

    def value(method: str, name: str) -> float:
        return figure(method, name, rng.random())

    def coverage(method: str) -> dict[str, list[Any]]:
        return {
            "questions_solved": [value(method, "solved") > 0.5 for _ in range(QUESTIONS)],
            "questions_distinct": [round(10 * value(method, "distinct")) for _ in range(QUESTIONS)],
        }

    def evaluation(method: str, step: int, dataset: str) -> dict[str, Any]:
        ks = {str(2**power): value(method if step else "base", f"pass@{2**power}") for power in range(6)}
        return {"step": step, "dataset": dataset, "pass_at_k": ks, "diff_at_k": ks, "no_answer_rate": 0.0}

    def one(run: Run) -> dict[str, Any]:
        curves = ("solved", "distinct", "distinct_unsolved", "no_answer")
        splits = [f"{kind}_{part}" for kind in ("entropy", "group") for part in ("correct", "incorrect", "all")]
        names = [*curves, *splits, "group_solved", "group_unsolved", "group_never_solved"]
        return {
            **run.cell._asdict(),
            "method": run.method,
            "seed": run.seed,
            "curves": {name: [value(run.method, name) for _ in range(plan.steps)] for name in names},
            "evaluations": [
                evaluation(run.method, step, dataset)
                for step in range(0, plan.steps + 1, plan.test_freq)
                for dataset in ("validation", "test")
            ],
            **coverage(run.method),
        }

    steps = list(range(3, plan.steps + 1, 3))
    curves = ("solved", "distinct", "distinct_unsolved")
    cells = [
        {
            **cell._asdict(),
            "questions": QUESTIONS,
            **{
                name: [
                    {
                        "steps": steps,
                        **{curve: [value(name, curve) for _ in steps] for curve in curves},
                        **coverage(name),
                    }
                ]
                * len(plan.seeds)
                for name in plan.base_samples()
            },
        }
        for cell in plan.cells()
    ]
    environment = {"devices": ["cpu"], "versions": {}, "commit": "0" * 40, "date": "2026-01-01"}
    return {
        "plan": {**asdict(plan)},
        "environment": environment,
        "cells": cells,
        "runs": [one(run) for run in plan.runs()],
        "left_out": [],
    }
