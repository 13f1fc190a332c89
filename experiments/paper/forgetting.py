"""Hard questions without forgetting: the comparisons of the plan `forgetting`, fixed before it is run. Not yet run.

Training on hard questions alone solves more of them with exploration (+.12 in the plan `hard`), and costs GRPO .20 of
pass@1 on test questions. Does the first survive where the second does not? Six ways of training, each with GRPO and
with Batch: on hard questions or on hard and medium ones, half of each; as they are, with twenty times the KL term, or
with half the learning rate. Ten rule tables that no other study has seen, one seed; one family of Holm's method.

The effects on hard questions are predicted from `hard`, those of mixed ones by half of them: nothing else is known. The
tabular model is no guide here, because it forgets far less than the language model did.
"""

import math
import statistics
from collections.abc import Iterator
from typing import NamedTuple

from experiments import claims
from experiments.paper.measures import BASE, Measure, Record, Results, final
from experiments.paper.plan import FORGETTING
from outcome_rl.tools.verdicts import Case, Verdict, judge, t_quantile

WAYS = ("", "-kl", "-slow")
LEVEL = 0.05
SPREADS = {"solved hard": 0.07, "final pass@1": 0.04, "final pass@32": 0.10}  # over the rule tables of `hard`


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


def _rows() -> Iterator[Row]:
    for split, way in ((split, way) for split in FORGETTING.splits for way in WAYS):
        part = 1.0 if (split, way) == ("hard", "") else 0.5
        yield Row(f"batch{way}", f"none{way}", split, "solved hard", 0.12 * part)
        yield Row(f"batch{way}", BASE, split, "final pass@1", -0.20 * part if split == "hard" else 0.10)
        yield Row(f"batch{way}", BASE, split, "final pass@32", -0.43 * part if split == "hard" else -0.06)


ROWS = tuple(_rows())


def power(row: Row) -> float:
    """Return the chance that a row is decided, by Bonferroni's level and a normal approximation."""
    units = len(FORGETTING.instances)
    critical = t_quantile(1 - LEVEL / len(ROWS), units - 1)
    normal = statistics.NormalDist(abs(row.effect) / (SPREADS[row.measure] / math.sqrt(units)))
    return 1 - normal.cdf(critical) + normal.cdf(-critical)


def differences(results: Results, row: Row) -> list[float]:
    """Return left minus right, one entry a rule table."""
    measure, cells = MEASURES[row.measure], [cell for cell in results.cells if cell.split == row.split]
    pairs = (zip(results.runs(cell, row.left), results.runs(cell, row.right), strict=True) for cell in cells)
    return [measure(left) - measure(right) for pair in pairs for left, right in pair]


def judged(results: Results) -> list[Verdict]:
    """Judge all rows together; the direction of each is that of its prediction."""
    margins = {name: claims.MEASURES[name.removesuffix(" hard")].margin for name in MEASURES}
    return judge([Case(differences(results, row), 1 if row.effect > 0 else -1, margins[row.measure]) for row in ROWS])
