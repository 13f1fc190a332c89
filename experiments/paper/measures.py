"""Measures of the records: metrics of a run, and paired differences of two methods."""

import math
import statistics
from collections.abc import Callable
from itertools import product
from typing import Any

from experiments.lab.verdicts import Estimate, estimate, per_unit
from experiments.paper.plan import Cell
from experiments.paper.runs import TEST, VALIDATION

Record = dict[str, Any]
Measure = Callable[[Record], float]
Contrast = Callable[[Record, Record], float | None]
BASE, BASE16 = "base", "base@16"  # as many samples as the runs draw, and as those with 16 per question and step
LAST_SHARE = 0.25  # statistics of training batches are averaged over the last quarter of the steps


class Results:
    """The records, found by cell, method and seed."""

    def __init__(self, records: Record) -> None:
        self.records = records
        self.cells = [cell_of(cell) for cell in records["cells"]]
        last = {"final_evaluations": records["plan"].get("final_evaluations", 1)}
        self._runs = {(cell_of(run), run["method"], run["seed"]): {**run, **last} for run in records["runs"]}
        for cell, name in product(records["cells"], (BASE, BASE16)):
            for seed, base in zip(records["plan"]["seeds"], cell.get(name, []), strict=False):
                place = cell_of(cell)
                # Every run evaluates the base policy at step 0, from the same seed.
                untrained = next(run for run in records["runs"] if cell_of(run) == place and run["seed"] == seed)
                at_start = [row for row in untrained["evaluations"] if row["step"] == 0]
                self._runs[place, name, seed] = {**base, "split": place.split, "evaluations": at_start}

    def runs(self, cell: Cell, method: str) -> list[Record]:
        """Return a method's runs in a cell, by seed; `BASE` is sampling from the base policy."""
        seeds = self.records["plan"]["seeds"]
        return [self._runs[cell, method, seed] for seed in seeds if (cell, method, seed) in self._runs]

    def difference(self, left: str, right: str, contrast: Contrast, split: str) -> Estimate:
        """Return the mean of `contrast` over the paired runs of two methods, in the cells of a split.

        The units are the cells, or the seeds if there is one cell. Pairs without a value are left out, such as those
        without an unsolved question.
        """
        cells = [cell for cell in self.cells if cell.split == split]
        values = [
            (cell if len(cells) > 1 else seed, contrast(*pair))
            for cell in cells
            for seed, pair in enumerate(zip(self.runs(cell, left), self.runs(cell, right), strict=False))
        ]
        return estimate(per_unit(values))


def of(measure: Measure) -> Contrast:
    """Return the contrast that subtracts a measure of two runs."""
    return lambda left, right: measure(left) - measure(right)


def solved(run: Record) -> float:
    """Return the fraction of the training questions that any sample of the run has solved."""
    return float(statistics.mean(run["questions_solved"]))


def distinct(run: Record) -> float:
    """Return the number of different answers per training question, over all samples of the run."""
    return float(statistics.mean(run["questions_distinct"]))


def distinct_on_common_unsolved(left: Record, right: Record) -> float | None:
    """Return the difference in answers per question, over the questions that both runs left unsolved."""
    both = zip(left["questions_solved"], right["questions_solved"], strict=True)
    common = [not (a or b) for a, b in both]
    if not any(common):
        return None
    return distinct_on(left, common) - distinct_on(right, common)


def distinct_on(run: Record, chosen: list[bool]) -> float:
    return float(
        statistics.mean(count for count, wanted in zip(run["questions_distinct"], chosen, strict=True) if wanted)
    )


def late(curve: str) -> Measure:
    """Return the measure of a curve's mean over the last quarter of training; NaN for runs without the curve."""

    def mean(run: Record) -> float:
        values = run["curves"].get(curve, [None])
        late_values = [value for value in values[-max(1, round(LAST_SHARE * len(values))) :] if value is not None]
        return statistics.mean(late_values) if late_values else math.nan

    return mean


def evaluations(run: Record, dataset: str) -> list[Record]:
    return [row for row in run["evaluations"] if row["dataset"] == dataset]


def final(k: int) -> Measure:
    """Return the measure of test pass@k of the last checkpoint, as in the paper."""
    return lambda run: float(evaluations(run, TEST)[-1]["pass_at_k"][str(k)])


def planned_final(k: int) -> Measure:
    """Return the measure of test pass@k that the plan had fixed: its mean over the plan's last few evaluations."""
    return lambda run: statistics.mean(
        row["pass_at_k"][str(k)] for row in evaluations(run, TEST)[-run.get("final_evaluations", 1) :]
    )


def best(k: int) -> Measure:
    """Return the measure of test pass@k of the checkpoint with the highest validation pass@k.

    Ties go to the earliest; the untrained policy is not a checkpoint.
    """

    def chosen(run: Record) -> float:
        validation = [row for row in evaluations(run, VALIDATION) if row["step"] > 0]
        step = max(validation, key=lambda row: row["pass_at_k"][str(k)])["step"]
        return next(float(row["pass_at_k"][str(k)]) for row in evaluations(run, TEST) if row["step"] == step)

    return chosen


def cell_of(record: Record) -> Cell:
    return Cell(record["instance"], record["policy"], record["split"])
