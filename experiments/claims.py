"""The paper's claims about training, as data: one table for every study of this folder.

The paper is Song, Kempe and Munos, "Outcome-based Exploration for LLM Reasoning" (2025, arXiv:2509.06941). A claim is
judged on the splits of which the paper makes it, never on a mixture of them. Beside each verdict stands the paper's own
effect, computed from the numbers of its tables with the standard error of their seeds.

Methods: `none` is GRPO; `base` is sampling from the base policy, as often as the other method of the comparison
samples; `@16` marks 16 samples per question and step instead of 8, as in the upper row of the paper's figure 2.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

NOTHING = "nothing"  # the right side of a claim about the sign of a measure
EARLY = 1 / 7  # of the run: the early checkpoint of figure 1 is step 100 of 700


class Measure(NamedTuple):
    """A figure of a run, and the difference below which it is of no interest, fixed before any study was run."""

    text: str
    margin: float


MEASURES = {
    "solved": Measure("share of the training questions solved so far", 0.01),
    "solved early": Measure("share of the training questions solved after a seventh of the run", 0.01),
    "answers": Measure("distinct answers per training question so far", 0.25),
    "answers unsolved": Measure("distinct answers per training question so far, where neither run solved it", 0.25),
    "best pass@1": Measure("test pass@1 of the checkpoint that is best on the validation questions", 0.01),
    "best pass@32": Measure("test pass@32 of the checkpoint that is best on the validation questions", 0.01),
    "final pass@1": Measure("test pass@1 of the last checkpoint", 0.01),
    "final pass@32": Measure("test pass@32 of the last checkpoint", 0.01),
    "late pass@32": Measure("change of test pass@32 from a seventh of the run to its end", 0.01),
    "entropy incorrect": Measure("token entropy of incorrect responses, last quarter of the run, nats", 0.002),
    "entropy gap": Measure("token entropy of incorrect responses minus that of correct ones, nats", 0.002),
    "group answers unsolved": Measure("distinct answers among 8 samples of a question never solved so far", 0.1),
    "group answers failed": Measure("distinct answers among 8 samples of a question, all of them wrong", 0.1),
    "group answers": Measure("distinct answers among 8 samples of a question", 0.1),
}


class Claim(NamedTuple):
    """`left` differs from `right` in each measure on each split by the sign of `direction` (0: it does not gain).

    A split "hard-medium" is about the difference of the differences on hard and on medium questions.
    """

    statement: str
    source: str
    left: str
    right: str
    measures: tuple[str, ...]
    splits: tuple[str, ...]
    direction: int


BOTH = ("easy", "medium")
TEST = ("best pass@1", "final pass@1", "final pass@32")
# Table 2 tells groups apart by "whether the question has been solved". Its other captions mean at any time in training;
# the samples of the group itself are another reading, so both are asked.
GROUPS = ("group answers unsolved", "group answers failed", "group answers")
TABLES_3_4 = "section 3.2.1, figure 4, tables 3 and 4"

CLAIMS = (
    # RL as sampling
    Claim(
        "RL solves questions faster than base sampling at first",
        *("section 2.2, figure 2, n = 16", "none@16", "base@16", ("solved early",), BOTH, 1),
    ),
    Claim(
        "RL eventually solves fewer training questions than the base policy at equal samples",
        *("section 2.2, figure 2, n = 16", "none@16", "base@16", ("solved",), BOTH, -1),
    ),
    Claim(
        "RL sees fewer answers than the base policy at equal samples",
        *("section 2.2, figure 2", "none", "base", ("answers",), BOTH, -1),
    ),
    Claim(
        "The loss of diversity transfers to unsolved questions",
        *("section 2.2, figure 2", "none", "base", ("answers unsolved",), BOTH, -1),
    ),
    Claim("RL raises pass@1", "abstract", "none", "base", ("final pass@1",), BOTH, 1),
    Claim(
        "RL lowers pass@k at large k below the base policy",
        *("section 1, of k = 512", "none", "base", ("final pass@32",), BOTH, -1),
    ),
    # historical exploration
    Claim("UCB solves more training questions than GRPO", "section 3.1.1", "ucb", "none", ("solved",), BOTH, 1),
    Claim(
        "UCB sees more answers on unsolved training questions than GRPO",
        *("figure 3", "ucb", "none", ("answers unsolved",), BOTH, 1),
    ),
    Claim(
        "UCB helps training more on the harder data",
        *("section 3.1.1", "ucb", "none", ("solved", "answers unsolved"), ("medium-easy",), 1),
    ),
    Claim(
        "UCB does not reliably help on test questions",
        *("section 3.1.1, of all but Llama on easy data", "ucb", "none", TEST, ("medium",), 0),
    ),
    Claim("The mean baseline helps UCB on test questions", TABLES_3_4, "ucb_mean", "ucb", TEST, BOTH, 1),
    Claim("UCB-Mean is better than GRPO on test questions", TABLES_3_4, "ucb_mean", "none", TEST, BOTH, 1),
    Claim("A mean baseline slightly hurts UCB in training", "section 3.2.1", "ucb_mean", "ucb", ("solved",), BOTH, -1),
    Claim(
        "A constant baseline slightly hurts UCB in training", "section 3.2.1", "ucb_con", "ucb", ("solved",), BOTH, -1
    ),
    Claim("UCB-Con outperforms GRPO in training", "section 3.2.1", "ucb_con", "none", ("solved",), BOTH, 1),
    Claim(
        "The constant baseline gives the best frontier: above GRPO",
        *(TABLES_3_4, "ucb_con", "none", (*TEST, "best pass@32"), BOTH, 1),
    ),
    Claim(
        "The constant baseline gives the best frontier: above UCB",
        *(TABLES_3_4, "ucb_con", "ucb", (*TEST, "best pass@32"), BOTH, 1),
    ),
    # overoptimisation
    Claim(
        "GRPO overoptimises: test pass@32 falls late in the run",
        *("figure 1, section 3.2.1", "none", NOTHING, ("late pass@32",), BOTH, -1),
    ),
    Claim(
        "UCB-Con mitigates overoptimisation",
        *("figure 1, section 3.2.1", "ucb_con", "none", ("late pass@32",), BOTH, 1),
    ),
    Claim("Batch mitigates overoptimisation", "figure 1, section 3.2.1", "batch", "none", ("late pass@32",), BOTH, 1),
    # batch exploration
    Claim(
        "Historical exploration finds more in training than Batch",
        *("section 3.3, figure 5", "ucb_con", "batch", ("solved", "answers unsolved"), BOTH, 1),
    ),
    Claim("Batch outperforms GRPO in accuracy", "section 3.3", "batch", "none", ("best pass@1",), BOTH, 1),
    Claim(
        "Batch is best at large k at the end: above GRPO",
        *("section 3.3, table 4", "batch", "none", ("final pass@32",), BOTH, 1),
    ),
    Claim(
        "Batch is best at large k at the end: above UCB-Con",
        *("section 3.3, table 4", "batch", "ucb_con", ("final pass@32",), BOTH, 1),
    ),
    Claim(
        "At its peak Batch is no better than UCB-Con",
        *("section 3.3, table 3", "batch", "ucb_con", ("best pass@1", "best pass@32"), BOTH, 0),
    ),
    Claim(
        "A positive batch bonus brings no meaningful gain over GRPO",
        *("section 3.3", "batch_positive", "none", ("solved", "final pass@1", "final pass@32"), BOTH, 0),
    ),
    # batch-level statistics
    Claim(
        "Incorrect generations have higher entropy than correct ones",
        *("section 4.1, table 1", "none", NOTHING, ("entropy gap",), ("medium",), 1),
    ),
    Claim(
        "Batch has the highest entropy of incorrect generations: above GRPO",
        *("section 4.1, table 1", "batch", "none", ("entropy incorrect",), ("medium",), 1),
    ),
    Claim(
        "Batch has the highest entropy of incorrect generations: above UCB-Con",
        *("section 4.1, table 1", "batch", "ucb_con", ("entropy incorrect",), ("medium",), 1),
    ),
    Claim(
        "Batch has the most distinct answers in a group: above GRPO",
        *("section 4.1, table 2", "batch", "none", GROUPS, ("medium",), 1),
    ),
    Claim(
        "Batch has the most distinct answers in a group: above UCB-Con",
        *("section 4.1, table 2", "batch", "ucb_con", GROUPS, ("medium",), 1),
    ),
    # the hard set
    Claim(
        "On hard questions UCB-Con finds more than GRPO",
        *("appendix B", "ucb_con", "none", ("solved", "answers"), ("hard",), 1),
    ),
    Claim(
        "On hard questions Batch finds more than GRPO",
        *("appendix B", "batch", "none", ("solved", "answers"), ("hard",), 1),
    ),
    Claim(
        "UCB-Con helps training more on hard than on medium questions",
        *("appendix B", "ucb_con", "none", ("solved",), ("hard-medium",), 1),
    ),
    Claim(
        "Training on hard questions does not help on test questions",
        *("appendix B", "none", "base", ("final pass@1", "final pass@32"), ("hard",), 0),
    ),
)


class Row(NamedTuple):
    """A claim in one measure on one split: the unit of a verdict."""

    claim: Claim
    measure: str
    split: str


def rows() -> Iterator[Row]:
    for claim in CLAIMS:
        for measure in claim.measures:
            for split in claim.splits:
                yield Row(claim, measure, split)


class Effect(NamedTuple):
    """A difference of two methods in the paper's tables, for one model, with its standard error over seeds."""

    model: str
    mean: float
    error: float


class Cell(NamedTuple):
    """An entry of the paper's tables: mean, standard deviation over seeds, number of seeds."""

    mean: float
    deviation: float
    seeds: int


def paper_effects(row: Row) -> list[Effect]:
    """Return the effect of a row in the paper's own numbers, one entry per model; empty where the paper gives none."""
    return [
        Effect(model, *_difference(table, row.claim.left, row.claim.right))
        for (measure, split, model), table in PAPER.items()
        if (measure, split) == (row.measure, row.split) and {row.claim.left, row.claim.right} <= {NOTHING, *table}
    ]


def _difference(table: Mapping[str, Cell], left: str, right: str) -> tuple[float, float]:
    minuend, subtrahend = table[left], Cell(0.0, 0.0, 1) if right == NOTHING else table[right]
    variance = sum(cell.deviation**2 / cell.seeds for cell in (minuend, subtrahend))
    return minuend.mean - subtrahend.mean, math.sqrt(variance)


def _three_seeds(numbers: str) -> dict[str, Cell]:
    """Read a column of table 3 or 4, as "mean (deviation)" in the order of its rows."""
    pairs = [entry.rstrip(")").split("(") for entry in numbers.split()]
    methods = ("none", "ucb", "ucb_mean", "ucb_con", "batch")
    return {method: Cell(float(mean), float(sd), 3) for method, (mean, sd) in zip(methods, pairs, strict=True)}


# Tables 3 (best checkpoint) and 4 (final checkpoint): Math is the easy data, DAPO the medium one.
PAPER: dict[tuple[str, str, str], dict[str, Cell]] = {
    (measure, split, model): _three_seeds(numbers)
    for measure, split, model, numbers in (
        ("best pass@1", "easy", "Llama", ".231(.006) .236(.000) .239(.003) .242(.003) .241(.001)"),
        ("best pass@32", "easy", "Llama", ".465(.031) .472(.024) .462(.003) .473(.003) .467(.025)"),
        ("best pass@1", "medium", "Llama", ".218(.012) .214(.004) .223(.006) .243(.005) .229(.003)"),
        ("best pass@32", "medium", "Llama", ".474(.014) .473(.014) .473(.011) .448(.003) .469(.014)"),
        ("best pass@1", "easy", "Qwen", ".385(.003) .379(.002) .387(.002) .395(.001) .390(.007)"),
        ("best pass@32", "easy", "Qwen", ".634(.008) .635(.012) .618(.001) .636(.006) .629(.011)"),
        ("best pass@1", "medium", "Qwen", ".403(.002) .397(.001) .407(.000) .419(.001) .413(.008)"),
        ("best pass@32", "medium", "Qwen", ".627(.004) .627(.005) .633(.008) .642(.002) .631(.005)"),
        ("final pass@1", "easy", "Llama", ".215(.018) .233(.003) .233(.003) .228(.003) .238(.009)"),
        ("final pass@32", "easy", "Llama", ".395(.017) .425(.006) .414(.004) .417(.007) .426(.011)"),
        ("final pass@1", "medium", "Llama", ".196(.012) .208(.008) .221(.008) .242(.009) .227(.004)"),
        ("final pass@32", "medium", "Llama", ".362(.034) .388(.006) .372(.012) .393(.005) .410(.009)"),
        ("final pass@1", "easy", "Qwen", ".381(.012) .372(.013) .387(.002) .391(.003) .382(.001)"),
        ("final pass@32", "easy", "Qwen", ".593(.006) .582(.008) .586(.005) .578(.007) .610(.001)"),
        ("final pass@1", "medium", "Qwen", ".399(.010) .392(.007) .407(.006) .419(.006) .412(.008)"),
        ("final pass@32", "medium", "Qwen", ".580(.013) .580(.008) .603(.007) .589(.006) .594(.010)"),
    )
}
# Best to final checkpoint: the nearest the tables come to figure 1's early and final ones.
PAPER |= {
    ("late pass@32", split, model): {
        method: Cell(last.mean - best.mean, math.hypot(last.deviation, best.deviation), 3)
        for method, last, best in (
            (method, PAPER["final pass@32", split, model][method], cell)
            for method, cell in PAPER["best pass@32", split, model].items()
        )
    }
    for split in BOTH
    for model in ("Llama", "Qwen")
}
# Tables 1 and 2: Qwen on the medium data, two seeds.
PAPER |= {
    ("entropy incorrect", "medium", "Qwen"): {
        "none": Cell(0.096, 0.04, 2),
        "ucb_con": Cell(0.103, 0.03, 2),
        "batch": Cell(0.153, 0.07, 2),
    },
    ("entropy gap", "medium", "Qwen"): {
        "none": Cell(0.096 - 0.080, math.hypot(0.04, 0.01), 2),
        "ucb_con": Cell(0.103 - 0.084, math.hypot(0.03, 0.01), 2),
        "batch": Cell(0.153 - 0.086, math.hypot(0.07, 0.01), 2),
    },
    ("group answers unsolved", "medium", "Qwen"): {
        "none": Cell(4.805, 0.075, 2),
        "ucb_con": Cell(4.855, 0.084, 2),
        "batch": Cell(5.390, 0.102, 2),
    },
    ("group answers", "medium", "Qwen"): {
        "none": Cell(2.883, 0.024, 2),
        "ucb_con": Cell(2.926, 0.035, 2),
        "batch": Cell(3.230, 0.062, 2),
    },
}
