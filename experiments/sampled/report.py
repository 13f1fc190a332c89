"""Whether trainings with sampled gradients end where exact ones do: pairs of trainings, and a test of equivalence.

The rows, their margins and the assumed spreads were fixed before the first training (README.md).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.lab.verdicts import estimate, t_quantile
from experiments.levels import PAPER, results
from experiments.paper.measures import final
from experiments.paper.plan import EQUIVALENCE
from experiments.paper.tables import label, table
from experiments.smollm2.sampled import SAMPLED, STUDY
from experiments.smollm2.study import GRPO, read_units

TOY, SMOLLM2 = "toy, medium", "SmolLM2-135M, Countdown"
CENTRAL = 0.9  # of the interval: two one-sided tests at level .05


class Row(NamedTuple):
    """One comparison: a method with and without sampled gradients."""

    task: str
    method: str
    k: int  # of test pass@k of the last checkpoint
    margin: float
    spread: float  # assumed standard deviation of a pair's difference

    @property
    def units(self) -> int:
        """Pairs that are planned."""
        return len(EQUIVALENCE.instances) if self.task == TOY else STUDY.plan.warm_starts


ROWS = (
    Row(TOY, "none", 1, 0.02, 0.019),
    Row(TOY, "none", 32, 0.03, 0.030),
    Row(TOY, "maxrl+batch", 1, 0.02, 0.019),
    Row(TOY, "maxrl+batch", 32, 0.03, 0.030),
    Row(SMOLLM2, "none", 1, 0.05, 0.030),
    Row(SMOLLM2, "none", 32, 0.06, 0.037),
)


def power(row: Row) -> float:
    """Return the chance that a row without a difference is found equivalent, by 20,000 simulated studies."""
    drawn = np.random.default_rng(0).normal(0, row.spread, (20_000, row.units))
    half = t_quantile(CENTRAL, row.units - 1) * drawn.std(axis=1, ddof=1) / np.sqrt(row.units)
    return float((abs(drawn.mean(axis=1)) + half < row.margin).mean())


def differences(row: Row) -> list[float]:
    """Return sampled minus exact of the pairs that are done."""
    if row.task == SMOLLM2:
        measure = f"pass@{row.k}"
        return [unit[SAMPLED][measure] - unit[GRPO][measure] for unit in read_units(STUDY)]
    if not (PAPER / EQUIVALENCE.name).exists():
        return []
    study, measured = results(EQUIVALENCE.name), final(row.k)
    pairs = ((study.runs(cell, name) for name in (f"{row.method}-sampled", row.method)) for cell in study.cells)
    return [measured(left) - measured(right) for runs in pairs for left, right in zip(*runs, strict=True)]


def verdict(differences: Sequence[float], margin: float) -> tuple[str, str]:
    """Return mean and 90 % interval in words, and whether it lies within the margin, beyond it, or on both sides."""
    found = estimate(differences)
    half = t_quantile(CENTRAL, found.units - 1) * found.error
    low, high = found.mean - half, found.mean + half
    word = "equivalent" if max(high, -low) < margin else "different" if max(low, -high) > margin else "undecided"
    return f"{found.mean:+.3f} [{low:+.3f}, {high:+.3f}]", word


def rows_table() -> str:
    """Return the plan, and what was measured where all pairs of a row are done, in Markdown."""
    lines = []
    for row in ROWS:
        found = differences(row)
        measured = verdict(found, row.margin) if len(found) == row.units else ("", f"{len(found)} of {row.units} done")
        planned = [f"{row.margin:g}", f"{row.spread:g}", str(row.units), f"{power(row):.2f}"]
        lines.append([row.task, label(row.method), f"pass@{row.k}", *planned, *measured])
    heading = ["task", "method", "measure", "margin", "assumed spread", "pairs", "power", "sampled - exact", "verdict"]
    return f"{table(heading, lines)}\n"
