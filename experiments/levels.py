"""The claims of the paper at every level: the tabular model, the toy language model, SmolLM2; their agreement.

Level 1 is the tabular model, as published (its own numbers of questions and steps) and matched (those of level 2).
Level 2 is the language model of half a million parameters: the studies `confirm` and `hard`, judged as one family.
Level 3 is SmolLM2-135M. Each level is a family of its own, because each is a study that could have been run alone.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments import claims
from experiments.judged import interval, judge_rows
from experiments.lab.verdicts import Estimate, estimate, per_unit
from experiments.paper.claims import MEASURES, PLANNED, differences_by_unit
from experiments.paper.measures import (
    BASE,
    BASE16,
    Contrast,
    Measure,
    Record,
    Results,
    distinct_on_common_unsolved,
    of,
    solved,
)
from experiments.paper.plan import CONFIRM, HARD, SAMPLING_LONG
from experiments.paper.tables import label, table
from experiments.smollm2 import record as smollm2

HERE = Path(__file__).parent
MECHANISM = HERE / "mechanism" / "results"
PAPER = HERE / "paper" / "results"
UNDECIDED = "undecided"
BONUSES = ("ucb", "ucb_mean", "ucb_con", "batch", "batch_positive")
Key = tuple[str, str, str]  # statement, measure, split


class Finding(NamedTuple):
    """One row at one level: its verdict, the mean with its interval, and the number of units."""

    word: str
    text: str
    estimate: Estimate


class Levels(NamedTuple):
    """Findings of each level by row."""

    published: dict[Key, Finding]
    matched: dict[Key, Finding]
    language_model: dict[Key, Finding]
    smollm2: dict[Key, Finding]


def read_levels() -> Levels:
    """Read the result files of every level."""
    model, own = (json.loads((MECHANISM / f"{name}.json").read_text())["claims"] for name in ("mechanism", "matched"))
    return Levels(_findings(model), _findings(own), _findings(language_model_rows()), _findings(smollm2_rows()))


def results(name: str) -> Results:
    """Read the result file of a study of the toy language model."""
    return Results(json.loads((PAPER / name / "records.json").read_text()))


def language_model_rows(measures: Mapping[str, Measure] = MEASURES) -> list[Record]:
    """Judge all claims that `confirm` or `hard` can answer, as one family."""
    confirm, hard = results(CONFIRM.name), results(HARD.name)
    return judge_rows(
        lambda row: per_unit(differences_by_unit(hard if row.split == "hard" else confirm, row, measures))
    )


def claims_table(levels: Levels) -> str:
    """Return a line for each row: verdict, difference and units at each level, in Markdown."""
    lines, previous = [], ""
    for row in claims.rows():
        statement = "" if row.claim.statement == previous else row.claim.statement
        previous = row.claim.statement
        key = (row.claim.statement, row.measure, row.split)
        cells = [found.get(key) for found in levels]
        lines.append([statement, f"{row.measure}, {row.split}", *(_cell(cell) for cell in cells)])
    heading = ["claim", "measure, questions", "model, published", "model, matched", "toy language model", "SmolLM2"]
    return table(heading, lines)


def sampling_table() -> str:
    """Return the rows about RL as sampling in the study of its own, one family, in Markdown."""
    study = results(SAMPLING_LONG.name)
    rows = judge_rows(lambda row: per_unit(differences_by_unit(study, row)) if row.claim.right == BASE16 else [])
    lines = [
        [row["statement"], row["measure"], interval(row["differences"]), row["word"]]
        for row in rows
        if row["differences"]
    ]
    return table(["claim", "measure", "GRPO - base policy [95 % interval], n = 16; ten rule tables", "verdict"], lines)


def decided_table(split: str) -> str:
    """Return the rows of the toy language model that are decided on a split, in Markdown."""
    lines = []
    for row, claim in zip(language_model_rows(), claims.rows(), strict=True):
        if row["split"] == split and row["differences"] and row["word"] != UNDECIDED:
            found = estimate(row["differences"])
            sides = (
                f"{label(row['left'])} - {label(row['right'])}"
                if row["right"] != claims.NOTHING
                else label(row["left"])
            )
            agrees = {"seen": "yes", "opposite": "no"}.get(row["word"], "less than the margin")
            lines.append([claim.claim.statement, sides, row["measure"], _text(found, 3), agrees])
    return table(["claim", "difference", "measure", "mean [95 % interval]; rule tables", "as in the paper"], lines)


def decided_count() -> str:
    """Return how many rows of the toy language model are decided, as a sentence."""
    rows = [row for row in language_model_rows() if row["differences"]]
    decided = sum(row["word"] != UNDECIDED for row in rows)
    by_split = {
        split: [row["word"] != UNDECIDED for row in rows if row["split"] == split] for split in ("medium", "hard")
    }
    parts = ", ".join(f"{sum(each)} of {len(each)} on {split} questions" for split, each in by_split.items())
    planned = [row for row in language_model_rows(PLANNED) if row["differences"]]
    changed = [
        f"{label(one['left'])} - {label(one['right'])}, {one['measure']}: {two['word']} instead of {one['word']}"
        for one, two in zip(rows, planned, strict=True)
        if one["word"] != two["word"]
    ]
    differ = f" ({'; '.join(changed)})" if changed else ", the same"
    return (
        f'**{decided} of {len(rows)} comparisons are decided**: {parts}. "Final" is the last checkpoint, as in the '
        "paper. The plan `confirm` had fixed the mean of the last three evaluations: by it "
        f"{sum(row['word'] != UNDECIDED for row in planned)} are decided{differ}.\n"
    )


def contradictions_table(levels: Levels) -> str:
    """Return the rows on which a level decides one sign and another level the other, in Markdown."""
    lines = []
    for key in levels.published:
        cells = [found.get(key) for found in levels]
        signs = {math.copysign(1, cell.estimate.mean) for cell in cells if cell and _decided_sign(cell)}
        if len(signs) == 2:
            lines.append([key[0], f"{key[1]}, {key[2]}", *(_cell(cell) for cell in cells)])
    heading = ["claim", "measure, questions", "model, published", "model, matched", "toy language model", "SmolLM2"]
    return table(heading, lines)


def agreement_table(levels: Levels) -> str:
    """Return how well each form of the model agrees with the language model, in Markdown."""
    lines = []
    fitted = {row.claim.statement for row in claims.rows() if not {row.claim.left, row.claim.right} & {*BONUSES}}
    bonuses = {key: finding for key, finding in levels.matched.items() if key[0] not in fitted}
    for name, model, splits in (
        ("published", levels.published, ("medium", "hard")),
        ("matched", levels.matched, ("medium", "hard")),
        ("matched, rows with a bonus", bonuses, ("medium",)),
    ):
        for split in splits:
            found = agreement(model, levels.language_model, split)
            share = "" if math.isnan(found.correlation) else f"{found.correlation:.2f}"
            lines.append(
                [
                    f"{name}, {split}",
                    str(found.rows),
                    f"{found.inside} of {found.rows}",
                    f"{found.overlap} of {found.rows}",
                    f"{found.signs} of {found.decided}",
                    share,
                ]
            )
    heading = [
        *("model, questions", "rows", "value inside the language model's interval", "intervals overlap"),
        *("sign of decided rows", "correlation"),
    ]
    return table(heading, lines)


class Agreement(NamedTuple):
    """Rows that two levels share, and on how many of them they agree."""

    rows: int
    inside: int
    overlap: int
    decided: int
    signs: int
    correlation: float


def agreement(model: Mapping[Key, Finding], language_model: Mapping[Key, Finding], split: str) -> Agreement:
    """Compare the model with the language model on the rows of a split; the correlation is that of `scaled`."""
    pairs = [(key, model[key], found) for key, found in language_model.items() if key in model and key[2] == split]
    at = [(one.estimate, other.estimate) for _, one, other in pairs]
    decided = [(one, other) for _, one, other in pairs if _decided_sign(other)]
    points = np.array([scaled(key, one, other) for key, one, other in pairs])
    return Agreement(
        len(pairs),
        sum(other.low <= one.mean <= other.high for one, other in at),
        sum(max(one.low, other.low) <= min(one.high, other.high) for one, other in at),
        len(decided),
        sum(one.estimate.mean * other.estimate.mean > 0 for one, other in decided),
        float(np.corrcoef(points.T)[0, 1]) if len(pairs) > 2 else math.nan,
    )


def scaled(key: Key, one: Finding, other: Finding) -> tuple[float, float]:
    """Return both means in margins of their measure, as sign(x) log(1 + |x|): measures then have one scale."""
    margin = claims.MEASURES[key[1]].margin
    first, second = (
        math.copysign(math.log1p(abs(each.estimate.mean) / margin), each.estimate.mean) for each in (one, other)
    )
    return first, second


def unsolved_table() -> str:
    """Return what each comparison of answers to unsolved questions rests on, in Markdown."""
    lines = []
    for name, split, pairs in (
        (CONFIRM.name, "medium", (("none", BASE), ("ucb", "none"), ("ucb_con", "batch"))),
        (HARD.name, "hard", (("none", BASE), ("ucb_con", "none"), ("batch", "none"))),
    ):
        found = results(name)
        for left, right in pairs:
            shared = _shared_unsolved(found, left, right)
            answers, solutions = (
                estimate(_by_table(found, left, right, contrast))
                for contrast in (distinct_on_common_unsolved, of(solved))
            )
            lines.append(
                [
                    f"{label(left)}, {label(right)}",
                    split,
                    str(sum(count for _, count in shared)),
                    str(sum(count > 0 for _, count in shared)),
                    str(len({instance for instance, count in shared if count})),
                    _text(answers, 2),
                    _text(solutions, 3),
                ]
            )
    heading = ["difference of", "questions", "left unsolved by both", "runs", "rule tables", "answers", "solved"]
    return table(heading, lines)


def draw(levels: Levels, path: Path) -> None:
    """Draw the language model's differences against those of the matched model, in margins of their measures."""
    from matplotlib.figure import Figure

    from experiments.paper.figures import finish_axes, save_small

    figure = Figure(figsize=(9.5, 4.4), layout="constrained")
    for axes, (name, model) in zip(
        figure.subplots(1, 2, sharey=True),
        (
            ("as published", levels.published),
            ("matched", levels.matched),
        ),
        strict=True,
    ):
        for split, colour in (("medium", "#0b6e99"), ("hard", "#d1495b")):
            pairs = [
                (key, model[key], found)
                for key, found in levels.language_model.items()
                if key in model and key[2] == split
            ]
            for decided, filled in ((True, colour), (False, "none")):
                points = [scaled(key, one, two) for key, one, two in pairs if (two.word != UNDECIDED) == decided]
                if points:
                    word = "decided" if decided else "undecided"
                    axes.scatter(
                        *zip(*points, strict=True), s=26, edgecolors=colour, facecolors=filled, label=f"{split}, {word}"
                    )
        axes.axline((0, 0), slope=1, color="#8c8c8c", lw=0.8)
        axes.axhline(0, color="#dddddd", lw=0.8, zorder=0)
        axes.axvline(0, color="#dddddd", lw=0.8, zorder=0)
        finish_axes(
            axes, f"Tabular model, {name}", "difference in the model, log of margins", legend=name.startswith("matched")
        )
    figure.axes[0].set_ylabel("difference in the language model, log of margins")
    save_small(figure, path, dpi=110)


def _findings(rows: Sequence[Mapping[str, Any]]) -> dict[Key, Finding]:
    return {
        (row["statement"], row["measure"], row["split"]): Finding(
            row["word"], interval(row["differences"]), estimate(row["differences"])
        )
        for row in rows
        if row["differences"]
    }


def smollm2_rows() -> list[Record]:
    """Judge the claims about test questions that the runs on SmolLM2 can answer, as one family; a unit is a seed.

    Their base policy is the one after the supervised warm start.
    """
    runs = json.loads((smollm2.RESULTS / f"{smollm2.NAME}.json").read_text())["figures"]["methods"]
    tests = {method: [run["evaluations"]["test"] for run in of_method] for method, of_method in runs.items()}
    last = {method: [test[-1] for test in each] for method, each in tests.items()}
    last[BASE] = [test[0] for test in tests["none"]]

    def differences(row: claims.Row) -> list[float]:
        name, _, k = row.measure.rpartition("pass@")
        if row.split != "medium" or name != "final " or not {row.claim.left, row.claim.right} <= last.keys():
            return []
        pairs = zip(last[row.claim.left], last[row.claim.right], strict=True)
        return [one["pass_at_k"][k] - two["pass_at_k"][k] for one, two in pairs]

    return judge_rows(differences)


def _cell(finding: Finding | None) -> str:
    if finding is None:
        return ""
    return f"**{finding.word}** {finding.text}; {finding.estimate.units}"


def _decided_sign(finding: Finding) -> bool:
    return finding.word in ("seen", "opposite") and (finding.estimate.low > 0 or finding.estimate.high < 0)


def _shared_unsolved(found: Results, left: str, right: str) -> list[tuple[int, int]]:
    """Return rule table and number of questions that both runs left unsolved, for each pair of runs."""
    return [
        (
            cell.instance,
            sum(not (a or b) for a, b in zip(one["questions_solved"], two["questions_solved"], strict=True)),
        )
        for cell in found.cells
        for one, two in zip(found.runs(cell, left), found.runs(cell, right), strict=True)
    ]


def _by_table(found: Results, left: str, right: str, contrast: Contrast) -> list[float]:
    return per_unit(
        (cell.instance, contrast(one, two))
        for cell in found.cells
        for one, two in zip(found.runs(cell, left), found.runs(cell, right), strict=True)
    )


def _text(found: Estimate, digits: int) -> str:
    return f"{found.mean:+.{digits}f} [{found.low:+.{digits}f}, {found.high:+.{digits}f}]; {found.units}"
