"""The three learning rates of the tabular policy, fitted to GRPO's curves of the language model and to nothing else.

No run with a bonus takes part: whatever the model says of bonuses is a prediction. The rule tables 0 and 1 of the fit
are in no other part of the study.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.mechanism.policy import Rates
from experiments.mechanism.splits import setting
from experiments.mechanism.training import KS, Method, Training, train

CURVES = Path(__file__).parent / "results" / "language-model.json"
# How far off counts as much in each measure: shares, and answers per question.
SCALES = {"pass@1": 0.05, "pass@32": 0.05, "solved": 0.05, "answers": 2.0}
GRID = {
    "own": (3.0, 4.0, 6.0, 8.0),
    "shared": (0.0, 1.0, 2.0, 4.0),
    "sharpness": (0.0, 0.003, 0.006, 0.01, 0.015),
}
SEEDS = (0, 1)


class Fit(NamedTuple):
    """A choice of rates, and the root mean square of its deviations from the language model in units of `SCALES`."""

    rates: Rates
    error: float
    by_measure: dict[str, float]


def calibrate(
    grid: Mapping[str, Sequence[float]] = GRID,
    target: Mapping[str, Any] | None = None,
    beta: float | None = None,
    seeds: Sequence[int] = SEEDS,
    **questions_of_splits: int,
) -> list[Fit]:
    """Fit every choice of rates in the grid; best first.

    Args:
        grid: values of each rate.
        target: curves of the language model; None is `CURVES`.
        beta: of `Method`.
        seeds: of the runs of each choice.
        questions_of_splits: arguments of `setting`.
    """
    target = json.loads(CURVES.read_text()) if target is None else target
    choices = [Rates(*rates) for rates in product(*(grid[name] for name in Rates._fields))]
    squares: list[dict[str, list[float]]] = [{name: [] for name in SCALES} for _ in choices]
    for cell in target["cells"]:
        table, questions, evaluation = setting(cell["instance"], cell["split"], **questions_of_splits)
        for start in range(0, len(choices), 10):
            chosen = choices[start : start + 10]
            runs = [(Method(rates, beta=beta), seed) for rates in chosen for seed in seeds]
            seen = train(table, questions, evaluation, runs, steps=max(target["steps"]), evaluate_at=target["steps"])
            for i in range(len(runs)):
                for name, deviations in _deviations(seen, i, cell):
                    squares[start + i // len(seeds)][name] += (deviations**2).tolist()
    fits = []
    for rates, values in zip(choices, squares, strict=True):
        by_measure = {name: float(np.sqrt(np.mean(each))) for name, each in values.items()}
        fits.append(Fit(rates, float(np.sqrt(np.mean(np.square(list(by_measure.values()))))), by_measure))
    return sorted(fits, key=lambda fit: fit.error)


def _deviations(seen: Training, run: int, cell: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    curves = {
        "pass@1": seen.test[KS.index(1), run],
        "pass@32": seen.test[KS.index(32), run],
        "solved": seen.solved[run],
        "answers": seen.answers[run, -1:],
    }
    for name, scale in SCALES.items():
        yield name, (curves[name] - np.array(cell[name])) / scale
