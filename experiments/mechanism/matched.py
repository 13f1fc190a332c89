"""The tabular model at the settings of the language-model study `confirm`: the same rule tables, questions and steps.

The studies of `study.py` sample each question as often as the paper does, on four times the questions, so their figures
are not those that a language model of `experiments/paper` should show. Here everything that both levels have is the
same, and the three rates are fitted to the GRPO runs of `confirm` and to no run with a bonus. Steps are divided by the
running norm of the gradient, because the trainer's optimizer (Adam) does not depend on the scale of the advantages
either; estimators differ in that scale by a factor of ten.
"""

import json
import statistics
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from experiments.mechanism.calibration import calibrate
from experiments.mechanism.policy import Rates
from experiments.mechanism.splits import SPLITS, Split
from experiments.mechanism.study import BASELINES, BONUSES, COEF, N, Plan, Runs, judge_claims, run_methods
from experiments.mechanism.training import STILL, Method
from experiments.paper.measures import Results, evaluations
from experiments.paper.plan import CONFIRM
from experiments.paper.runs import TEST

CONFIRM_RECORDS = Path(__file__).parents[1] / "paper" / "results" / CONFIRM.name / "records.json"
RESULT = Path(__file__).parent / "results" / "matched.json"
BETA = 0.999  # the trainer's, of Adam
PLAN = Plan(
    instances=CONFIRM.instances,
    seeds=(0, 1, 2, 3),
    questions=CONFIRM.train_questions,
    batch=CONFIRM.batch,
    samples=tuple((split, CONFIRM.steps * CONFIRM.batch * N // CONFIRM.train_questions) for split in BASELINES),
    evaluations=CONFIRM.steps // CONFIRM.test_freq,
    validation_questions=CONFIRM.validation_questions,
    test_questions=CONFIRM.test_questions,
)
GRID = {
    "own": (2.0, 3.0, 4.0, 6.0),
    "shared": (0.0, 1.0, 2.0, 4.0),
    "sharpness": (0.0, 0.006, 0.009, 0.012, 0.016),
}


def language_model_curves(results: Results) -> dict[str, Any]:
    """Return the curves of the GRPO runs on medium questions, means over the seeds of each rule table."""
    cells = []
    for cell in results.cells:
        runs = results.runs(cell, "none")
        tests = [[row for row in evaluations(run, TEST) if row["step"] > 0] for run in runs]
        steps = [row["step"] for row in tests[0]]

        def mean(rows: list[list[float]]) -> list[float]:
            return [statistics.fmean(column) for column in zip(*rows, strict=True)]

        cells.append(
            {
                "instance": cell.instance,
                "split": cell.split,
                "pass@1": mean([[row["pass_at_k"]["1"] for row in test] for test in tests]),
                "pass@32": mean([[row["pass_at_k"]["32"] for row in test] for test in tests]),
                "solved": mean([[run["curves"]["solved"][step - 1] for step in steps] for run in runs]),
                "answers": statistics.fmean(statistics.fmean(run["questions_distinct"]) for run in runs),
            }
        )
    return {"steps": steps, "cells": cells}


def fit() -> list[Any]:
    """Fit the rates to the GRPO runs of `confirm`; best first."""
    results = Results(json.loads(CONFIRM_RECORDS.read_text()))
    return calibrate(
        GRID,
        language_model_curves(results),
        BETA,
        seeds=(0,),
        questions=PLAN.questions,
        validation=PLAN.validation_questions,
        test=PLAN.test_questions,
    )


def matched_method(bonus: str, split: Split, rates: Rates, coef: float = COEF, estimator: str = "grpo") -> Method:
    """Make a method of the matched model; "base" is the base policy, "none" has no bonus."""
    coefs = {} if bonus in ("base", "none") else dict.fromkeys(bonus.split("+"), coef)
    return Method(STILL if bonus == "base" else rates, coefs, BASELINES[split], estimator, BETA)


def run_matched(rates: Rates, plan: Plan = PLAN) -> Runs:
    """Train what `confirm` and `hard` compare, on their rule tables."""
    runs: Runs = {}
    for instance, split in product(plan.instances, SPLITS[1:]):
        methods: Mapping[str, Method] = {name: matched_method(name, split, rates) for name in ("base", *BONUSES)}
        runs |= run_methods(plan, instance, split, methods)
        if split == "medium":
            twice = {f"{name}@16": methods[name] for name in ("base", "none")}
            runs |= run_methods(plan, instance, split, twice, n=2 * N, length=2.0)
    return runs


def write_result(path: Path = RESULT) -> Path:
    """Fit, run and judge; write the result file and return its path."""
    fits = fit()
    best = fits[0]
    record = {
        "rates": best.rates._asdict(),
        "fit": {"error": best.error, **best.by_measure},
        "next_fits": [{"rates": other.rates._asdict(), "error": other.error} for other in fits[1:6]],
        "beta": BETA,
        "instances": PLAN.instances,
        "seeds": PLAN.seeds,
        "claims": judge_claims(run_matched(best.rates), PLAN),
    }
    path.write_text(json.dumps(record, separators=(",", ":")) + "\n")
    return path
