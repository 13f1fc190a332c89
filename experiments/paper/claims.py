"""The measures of the paper's claims on the records of a plan, paired for the verdicts.

A unit of replication is a rule table with one of its base policies: runs of the same unit share the questions and the
policy that they start from.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from experiments import claims
from experiments.paper.measures import (
    BASE,
    BASE16,
    Measure,
    Record,
    Results,
    best,
    distinct,
    distinct_on_common_unsolved,
    evaluations,
    final,
    late,
    of,
    planned_final,
    solved,
)
from experiments.paper.plan import Cell
from experiments.paper.runs import TEST


def solved_early(run: Record) -> float:
    """Return the share of the training questions solved after `claims.EARLY` of the steps."""
    curve = run.get("curves", run)["solved"]  # of the base policy: one entry per epoch
    return float(curve[max(1, round(claims.EARLY * len(curve))) - 1])


def late_change(last: Measure) -> Measure:
    """Return the measure of the change of test pass@32 from the evaluation nearest to `claims.EARLY` to `last`."""

    def change(run: Record) -> float:
        tests = [row for row in evaluations(run, TEST) if row["step"] > 0]
        early = min(tests, key=lambda row: abs(row["step"] - claims.EARLY * tests[-1]["step"]))
        return last(run) - float(early["pass_at_k"]["32"])

    return change


def entropy_gap(run: Record) -> float:
    return late("entropy_incorrect")(run) - late("entropy_correct")(run)


MEASURES: dict[str, Measure] = {
    "solved": solved,
    "solved early": solved_early,
    "answers": distinct,
    "best pass@1": best(1),
    "best pass@32": best(32),
    "final pass@1": final(1),
    "final pass@32": final(32),
    "late pass@32": late_change(final(32)),
    "entropy incorrect": late("entropy_incorrect"),
    "entropy gap": entropy_gap,
    "group answers unsolved": late("group_never_solved"),
    "group answers failed": late("group_unsolved"),
    "group answers": late("group_all"),
}
PLANNED: dict[str, Measure] = MEASURES | {
    "final pass@1": planned_final(1),
    "final pass@32": planned_final(32),
    "late pass@32": late_change(planned_final(32)),
}
"""The measures as the plans fixed them: in `confirm` and `grid`, "final" is the mean of the last three evaluations."""


class Unit(NamedTuple):
    """A rule table and a base policy."""

    instance: int
    policy: str


def differences_by_unit(
    results: Results, row: claims.Row, measures: Mapping[str, Measure] = MEASURES
) -> Iterator[tuple[Unit, float | None]]:
    """Yield left minus right of a claim for each unit and seed; nothing where the plan lacks a method or a split."""
    methods = {BASE, BASE16, claims.NOTHING, *results.records["plan"]["methods"]}
    if not {row.claim.left, row.claim.right} <= methods:
        return
    splits = row.split.split("-")
    for unit in dict.fromkeys(Unit(cell.instance, cell.policy) for cell in results.cells):
        cells = [Cell(*unit, split) for split in splits]
        if not set(cells) <= set(results.cells):
            continue
        by_split = [list(_differences(results, row, cell, measures)) for cell in cells]
        for values in zip(*by_split, strict=True):
            first, *others = (math.nan if value is None else value for value in values)
            yield unit, first - sum(others)


def _differences(
    results: Results, row: claims.Row, cell: Cell, measures: Mapping[str, Measure]
) -> Iterator[float | None]:
    """Yield the difference of each seed."""
    left = results.runs(cell, row.claim.left)
    if row.claim.right == claims.NOTHING:
        yield from map(measures[row.measure], left)
        return
    contrast = distinct_on_common_unsolved if row.measure == "answers unsolved" else of(measures[row.measure])
    for pair in zip(left, results.runs(cell, row.claim.right), strict=True):
        yield contrast(*pair)
