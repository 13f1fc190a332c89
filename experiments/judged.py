"""The claims judged on the runs of a study: rows for its record, and their table, by one rule for every study.

The rule is that of `experiments.lab.verdicts`: paired differences, averaged over the seeds of each unit,
their t interval, and Holm's correction over all rows of the study.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from experiments import claims
from experiments.lab import verdicts

Record = dict[str, Any]
NO_VALUE = "no value"


def judge_rows(differences: Callable[[claims.Row], list[float]]) -> list[Record]:
    """Judge every claim; return its rows with differences and verdict, as they are recorded.

    Args:
        differences: left minus right of a row, one entry a unit; empty where the study has none.
    """
    rows = list(claims.rows())
    found = [differences(row) for row in rows]
    cases = [
        verdicts.Case(values, row.claim.direction, claims.MEASURES[row.measure].margin)
        for row, values in zip(rows, found, strict=True)
    ]
    return [
        {
            "statement": row.claim.statement,
            "left": row.claim.left,
            "right": row.claim.right,
            "measure": row.measure,
            "split": row.split,
            "word": verdict.word,
            "p": short(verdict.p),
            "differences": [short(value) for value in values],
        }
        for row, values, verdict in zip(rows, found, verdicts.judge(cases), strict=True)
    ]


def power(effect: float, spread: float, units: int, rows: int) -> float:
    """Return the chance that one of `rows` comparisons is decided, by Bonferroni's level and a normal approximation.

    Holm's method decides at least as many.
    """
    critical = verdicts.t_quantile(1 - verdicts.LEVEL / rows, units - 1)
    normal = statistics.NormalDist(abs(effect) / (spread / math.sqrt(units)))
    return 1 - normal.cdf(critical) + normal.cdf(-critical)


def summary(rows: Sequence[Record]) -> str:
    """Return how many comparisons and claims are decided, in Markdown."""
    judged = [row for row in rows if row["differences"]]
    decided = [row for row in judged if row["word"] != "undecided"]
    by_claim = [
        [row for row in group if row["differences"]] for _, group in groupby(rows, key=lambda row: row["statement"])
    ]
    asked = [group for group in by_claim if group]
    whole = [group for group in asked if all(row["word"] != "undecided" for row in group)]
    words = ", ".join(f"{word} {sum(row['word'] == word for row in judged)}" for word in verdicts.WORDS)
    return (
        f"**{len(decided)} of {len(judged)} comparisons are decided** ({words}), and {len(whole)} of {len(asked)} "
        "claims in every measure and on every split where they can be asked."
    )


def claims_table(rows: Sequence[Record]) -> str:
    """Return a line for each row, beside the paper's own effect, in Markdown."""
    lines = [
        "| claim | paper | measure | split | difference | verdict | in the paper |",
        "|---|---|---|---|---|---|---|",
    ]
    previous = ""
    for row, claim in zip(rows, claims.rows(), strict=True):
        statement, source = (claim.claim.statement, claim.claim.source) if row["statement"] != previous else ("", "")
        previous = row["statement"]
        effects = ", ".join(f"{e.model} {e.mean:+.3f} ± {e.error:.3f}" for e in claims.paper_effects(claim))
        word = f"**{row['word']}**" if row["differences"] else NO_VALUE
        lines.append(
            f"| {statement} | {source} | {row['measure']} | {row['split']} | {interval(row['differences'])} | "
            f"{word} | {effects} |"
        )
    return "\n".join(lines)


def interval(differences: Sequence[float]) -> str:
    """Return the mean of differences with its 95 % t interval, where there is one."""
    if not differences:
        return ""
    found = verdicts.estimate(differences)
    digits = 4 if abs(found.mean) < 0.1 else 3 if abs(found.mean) < 1 else 2
    if math.isnan(found.low):
        return f"{found.mean:+.{digits}f}"
    return f"{found.mean:+.{digits}f} [{found.low:+.{digits}f}, {found.high:+.{digits}f}]"


def short(value: float) -> float:
    """Round to five digits after the point; more is noise in a record."""
    return round(float(value), 5)
