"""Plan and runs of the mechanism study: the paper's claims, dose-responses, and ablations.

Fixed before it was run: the rates come from `calibration.py`, coefficients and baselines from the paper (c = 0.2, as
for Qwen; b0 = 1 on easy and 0.5 on medium questions, and 0.5 on hard ones, of which the paper says nothing), and a run
samples each question as often as the paper's 700 steps do: 191 times on the easy data, 373 on the medium, 1,439 on the
hard.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments import claims
from experiments.judged import judge_rows, short
from experiments.lab import verdicts
from experiments.mechanism.policy import Rates, without_sharing
from experiments.mechanism.splits import SPLITS, Split, setting
from experiments.mechanism.training import KS, STILL, Evaluation, Method, Training, train

# The best fits of `python -m experiments.mechanism --calibrate`. The curves of GRPO hardly tell how much of the sharing
# is whose, so the claims are also judged with two others that fit almost as well.
RATES = Rates(own=4.0, shared=1.0, sharpness=0.01)
OTHER_RATES = (Rates(own=6.0, shared=0.0, sharpness=0.01), Rates(own=3.0, shared=1.0, sharpness=0.015))
COEF = 0.2
BASELINES: dict[Split, float] = {"easy": 1.0, "medium": 0.5, "hard": 0.5}
BONUSES = ("none", "ucb", "ucb_mean", "ucb_con", "batch", "batch_positive")
N = 8


@dataclass(frozen=True)
class Plan:
    """How much is run."""

    instances: tuple[int, ...] = tuple(range(2, 22))  # 0 and 1 calibrated the rates
    seeds: tuple[int, ...] = (0,)
    questions: int = 512
    batch: int = 64
    # Samples per question of a whole run with 8 samples per step: 700 * 256 * 8 / 7500, 3840 and 996 questions.
    samples: tuple[tuple[Split, int], ...] = (("easy", 192), ("medium", 376), ("hard", 1440))
    dose_instances: tuple[int, ...] = tuple(range(2, 10))
    evaluations: int = 14  # evenly over a run, so that one is near the early checkpoint of `claims.EARLY`
    final_evaluations: int = 1  # final figures are means over this many evaluations, the last ones
    validation_questions: int = 256
    test_questions: int = 512

    def steps(self, split: Split, questions: int, n: int = N) -> int:
        return dict(self.samples)[split] * questions // (n * min(self.batch, questions))


class Run(NamedTuple):
    """Figures of one run by the names of `claims.MEASURES`, and the results of each question."""

    measures: dict[str, float]
    solved: NDArray[np.bool_]
    answers: NDArray[np.int64]


Progress = Callable[[str], None]
Runs = dict[tuple[int, int, str, str], Run]  # instance, seed, split, method


def method(bonus: str, split: Split = "medium", coef: float = COEF, **changes: Any) -> Method:
    """Make the method of a name such as "ucb_con" or "ucb_con+batch" on a split; "none" and "base" have no bonus."""
    coefs = {} if bonus in ("base", "none") else dict.fromkeys(bonus.split("+"), coef)
    plain = Method(STILL if bonus == "base" else RATES, coefs, BASELINES[split])
    return replace(plain, **changes)


def run_claims(plan: Plan, rates: Rates = RATES, progress: Progress = lambda text: None) -> Runs:
    """Train every run that the claims compare."""
    runs: Runs = {}
    for instance in plan.instances:
        for split in SPLITS:
            methods = {name: method(name, split, rates=rates) for name in BONUSES}
            base = method("base")
            runs |= run_methods(plan, instance, split, methods | {"base": base})
            if split != "hard":
                sampling = {"none@16": methods["none"], "base@16": base}
                # Twice the samples in as many steps.
                runs |= run_methods(plan, instance, split, sampling, n=2 * N, length=2.0)
        progress(f"claims: rule table {instance}")
    return runs


def differences(runs: Runs, row: claims.Row, plan: Plan) -> list[float]:
    """Return left minus right of a claim, one entry per rule table, averaged over its seeds."""
    return verdicts.per_unit(
        (instance, _difference(runs, row, row.split, instance, seed))
        for instance, seed in product(plan.instances, plan.seeds)
    )


def judge_claims(runs: Runs, plan: Plan) -> list[dict[str, Any]]:
    """Judge every claim; return its rows with differences and verdict, as they are recorded."""
    return judge_rows(lambda row: differences(runs, row, plan))


def levels(runs: Runs) -> list[dict[str, Any]]:
    """Average every measure over tables and seeds, for each split and method."""
    groups: dict[tuple[str, str], list[dict[str, float]]] = {}
    for (_, _, split, name), run in runs.items():
        groups.setdefault((split, name), []).append(run.measures)
    return [
        {"split": split, "method": name} | {measure: _mean([each[measure] for each in group]) for measure in group[0]}
        for (split, name), group in groups.items()
    ]


class Point(NamedTuple):
    """One setting of a dose-response or ablation; points of one study and method are compared on the same tables."""

    study: str
    name: str  # of the method that is varied
    value: float | str
    method: Method
    n: int = N
    length: float = 1.0  # of the run, in those of the claims
    shares: bool = True  # False gives every question parameters of its own


POINT_MEASURES = ("final pass@1", "final pass@32", "solved", "answers")
COEFS, BASELINE_DOSES = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0), (0.0, 0.25, 0.5, 0.75, 1.0)
SAMPLES, LENGTHS, SHARINGS = (4, 8, 16, 32), (0.125, 0.25, 0.5, 1.0, 2.0), (0.0, 0.5, 1.0, 2.0)
COMPARED = ("base", "none", "ucb", "ucb_con", "batch")
ABLATIONS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "counts after the batch": (("ucb", "ucb_con"), {"counts_after": True}),
    "counts decay by 0.99 a step": (("ucb", "ucb_con"), {"decay": 0.99}),
    "bonus for incorrect responses only": (("ucb", "ucb_con", "batch"), {"only_incorrect": True}),
    "UCB-Con and Batch together": (("ucb_con", "batch"), {"coefs": {"ucb_con": COEF, "batch": COEF}}),
}


def points() -> Iterator[Point]:
    """List every point, all on medium questions."""
    for name, coef in product(("ucb", "ucb_con", "batch"), COEFS):
        yield Point("c", name, coef, method(name, coef=coef))
    for baseline in BASELINE_DOSES:
        yield Point("b0", "ucb_con", baseline, method("ucb_con", baseline=baseline))
    for name, n in product(COMPARED, SAMPLES):
        yield Point("n", name, n, method(name), n=n)  # at the same number of samples
    for name, length in product(COMPARED, LENGTHS):
        yield Point("length", name, length, method(name), length=length)
    for name in COMPARED:
        for label in ("none", *SHARINGS):
            times = label if isinstance(label, float) else 0.0
            scaled = Rates(RATES.own, times * RATES.shared, times * RATES.sharpness)
            rates = STILL if name == "base" else scaled
            yield Point("sharing", name, label, method(name, rates=rates), shares=label != "none")
    for ablation, (names, changes) in ABLATIONS.items():
        for name in names:
            yield Point(ablation, name, "no", method(name))
            yield Point(ablation, name, "yes", method(name, **changes))


def run_points(
    plan: Plan, chosen: Iterable[Point] | None = None, progress: Progress = lambda text: None
) -> list[dict[str, Any]]:
    """Train every point; return study, name, value, and each measure's mean over seeds, one entry per rule table."""
    batches: dict[tuple[int, float, bool], dict[int, Point]] = {}  # points that can be trained together, by position
    for i, point in enumerate(points() if chosen is None else chosen):
        batches.setdefault((point.n, point.length, point.shares), {})[i] = point
    recorded: dict[int, dict[str, Any]] = {}
    for (n, length, shares), batch in batches.items():
        methods = {f"{i}": point.method for i, point in batch.items()}
        found: Runs = {}
        for instance in plan.dose_instances:
            found |= run_methods(plan, instance, "medium", methods, n=n, length=length, shares=shares)
        for i, point in batch.items():
            entry: dict[str, Any] = {"study": point.study, "name": point.name, "value": point.value}
            for measure in POINT_MEASURES:
                entry[measure] = [
                    _mean([found[instance, seed, "medium", f"{i}"].measures[measure] for seed in plan.seeds])
                    for instance in plan.dose_instances
                ]
            recorded[i] = entry
        progress(f"doses: n = {n}, length {length:g}, {len(batch)} points")
    return [recorded[i] for i in sorted(recorded)]


def run_methods(
    plan: Plan,
    instance: int,
    split: Split,
    methods: Mapping[str, Method],
    *,
    n: int = N,
    length: float = 1.0,
    shares: bool = True,
) -> Runs:
    """Train each method with each seed, all together, on one rule table and split."""
    table, questions, exams = setting(instance, split, plan.questions, plan.validation_questions, plan.test_questions)
    evaluation: Evaluation | None = exams
    steps = round(length * plan.steps(split, len(questions.gold), n))
    if not shares:
        # Test questions have no row in a table of training questions: only what happens in training can be seen.
        (table, questions), evaluation = without_sharing(table, questions), None
    checkpoints = sorted({round(steps * i / plan.evaluations) for i in range(plan.evaluations + 1)})
    chosen = [(name, seed) for name in methods for seed in plan.seeds]
    training = train(
        table,
        questions,
        evaluation,
        [(methods[name], seed) for name, seed in chosen],
        steps=steps,
        batch=plan.batch,
        n=n,
        evaluate_at=checkpoints,
    )
    return {
        (instance, seed, split, name): figures_of(training, i, plan.final_evaluations)
        for i, (name, seed) in enumerate(chosen)
    }


def figures_of(training: Training, i: int, last: int) -> Run:
    early = int(np.abs(training.steps - claims.EARLY * training.steps[-1]).argmin())
    test = {k: training.test[KS.index(k), i] for k in (1, 32)}
    # The untrained policy is no checkpoint; of equals argmax takes the earliest.
    best = {k: test[k][1 + int(training.validation[KS.index(k), i, 1:].argmax())] for k in (1, 32)}
    final = {k: curve[-last:].mean() for k, curve in test.items()}
    measures = {
        "solved": training.solved[i, -1],
        "solved early": training.solved[i, early],
        "answers": training.answers[i, -1],
        "best pass@1": best[1],
        "best pass@32": best[32],
        "final pass@1": final[1],
        "final pass@32": final[32],
        "late pass@32": final[32] - test[32][early],
        "entropy incorrect": training.entropy_incorrect[i],
        "entropy gap": training.entropy_incorrect[i] - training.entropy_correct[i],
        "group answers unsolved": training.group_answers_unsolved[i],
        "group answers failed": training.group_answers_failed[i],
        "group answers": training.group_answers[i],
    }
    return Run(
        {name: float(value) for name, value in measures.items()},
        training.questions_solved[i],
        training.questions_answers[i],
    )


def _difference(runs: Runs, row: claims.Row, split: str, instance: int, seed: int) -> float | None:
    if "-" in split:
        one, other = (_difference(runs, row, part, instance, seed) for part in split.split("-"))
        return None if one is None or other is None else one - other
    left = runs.get((instance, seed, split, row.claim.left))
    if left is None:
        return None  # the study leaves this split or method out
    if row.claim.right == claims.NOTHING:
        return left.measures[row.measure]
    right = runs[instance, seed, split, row.claim.right]
    if row.measure == "answers unsolved":
        neither = ~(left.solved | right.solved)
        return float((left.answers - right.answers)[neither].mean()) if neither.any() else None
    return left.measures[row.measure] - right.measures[row.measure]


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return short(statistics.fmean(known)) if known else None
