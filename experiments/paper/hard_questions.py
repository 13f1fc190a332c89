"""Training on hard questions: the comparisons of the plans `hard-estimators` and `forgetting`, fixed before their runs.

`hard-estimators`: on medium questions the plan `grid` decided that MaxRL, MaxRL with Batch, and PKPO hold more of
pass@32 than GRPO. Do they also solve more hard questions, as Batch does (+.12 in the plan `hard`)? Each against GRPO,
on the rule tables of `grid`. The tabular model, run on hard questions of ten other tables, predicts what they solve.
It is no guide to forgetting, which is far less in the model than in the language model, so their differences on test
questions are predicted to be those that `grid` measured on medium ones.

`forgetting`: training on hard questions alone costs GRPO .20 of pass@1 on test questions. Does exploration survive
where that does not? Six ways of training, each with GRPO and with Batch: on hard questions or on hard and medium ones,
half of each; as they are, with twenty times the KL term, or with half the learning rate. Ten rule tables that no other
study has seen. The effects on hard questions are predicted from `hard`, those of mixed ones by half of them: nothing
else is known.

Each plan has one seed, and is one family of Holm's method.
"""

import statistics
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from experiments import claims
from experiments.judged import interval
from experiments.lab.verdicts import Case, Verdict, judge
from experiments.paper.measures import BASE, Measure, Record, Results, final
from experiments.paper.plan import FORGETTING, HARD_ESTIMATORS
from experiments.paper.tables import label, table

WAYS = ("", "-kl", "-slow")


class Row(NamedTuple):
    """One comparison, and the difference that is predicted."""

    left: str
    right: str
    split: str
    measure: str
    effect: float


def solved_hard(run: Record) -> float:
    """Return the share of the hard training questions that were solved: the first half of a mixed set."""
    solved = run["questions_solved"]
    return statistics.fmean(solved if run["split"] == "hard" else solved[: len(solved) // 2])


MEASURES: dict[str, Measure] = {"solved hard": solved_hard, "final pass@1": final(1), "final pass@32": final(32)}


# By measure, the predicted difference from GRPO after training on hard questions.
PREDICTED = {
    "batch": {"solved hard": 0.12, "final pass@1": -0.005, "final pass@32": 0.015},
    "maxrl": {"solved hard": 0.06, "final pass@1": 0.02, "final pass@32": 0.06},
    "maxrl+batch": {"solved hard": 0.09, "final pass@1": 0.01, "final pass@32": 0.065},
    "pkpo": {"solved hard": 0.08, "final pass@1": -0.025, "final pass@32": 0.12},
}


def _forgetting_rows() -> Iterator[Row]:
    for split, way in product(FORGETTING.splits, WAYS):
        part = 1.0 if (split, way) == ("hard", "") else 0.5
        yield Row(f"batch{way}", f"none{way}", split, "solved hard", 0.12 * part)
        yield Row(f"batch{way}", BASE, split, "final pass@1", -0.20 * part if split == "hard" else 0.10)
        yield Row(f"batch{way}", BASE, split, "final pass@32", -0.43 * part if split == "hard" else -0.06)


ROWS = {
    HARD_ESTIMATORS.name: tuple(
        Row(method, "none", "hard", measure, effect)
        for method, effects in PREDICTED.items()
        for measure, effect in effects.items()
    ),
    FORGETTING.name: tuple(_forgetting_rows()),
}


def differences(results: Results, row: Row) -> list[float]:
    """Return left minus right, one entry a rule table."""
    measure, cells = MEASURES[row.measure], [cell for cell in results.cells if cell.split == row.split]
    pairs = (zip(results.runs(cell, row.left), results.runs(cell, row.right), strict=True) for cell in cells)
    return [measure(left) - measure(right) for pair in pairs for left, right in pair]


def judged(results: Results, rows: Sequence[Row]) -> list[Verdict]:
    """Judge rows together; the direction of each is that of its prediction."""
    margins = {name: claims.MEASURES[name.removesuffix(" hard")].margin for name in MEASURES}
    return judge([Case(differences(results, row), 1 if row.effect > 0 else -1, margins[row.measure]) for row in rows])


def verdict_table(results: Results, rows: Sequence[Row]) -> str:
    """Return predicted and measured differences, with intervals and verdicts, in Markdown."""
    lines = [
        [
            f"{label(row.left)} - {label(row.right)}",
            f"{row.measure}, {row.split}",
            f"{row.effect:+.3f}",
            interval(differences(results, row)),
            verdict.word,
        ]
        for row, verdict in zip(rows, judged(results, rows), strict=True)
    ]
    return table(["difference", "measure, questions", "predicted", "measured [95 % interval]", "verdict"], lines)
