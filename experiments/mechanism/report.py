"""Report of the mechanism study: Markdown and one figure, from its record alone."""

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from experiments import claims
from experiments.judged import claims_table, interval, summary
from experiments.mechanism.hacking import MEASURES, MODES
from experiments.mechanism.study import POINT_MEASURES

LABELS = {
    "base": "base sampling",
    "none": "GRPO",
    "ucb": "UCB",
    "ucb_mean": "UCB-Mean",
    "ucb_con": "UCB-Con",
    "batch": "Batch",
    "batch_positive": "Batch-Positive",
}
COLOURS = {"base": "#8c8c8c", "none": "#d1495b", "ucb": "#e9a03b", "ucb_con": "#0b6e99", "batch": "#4f9d69"}
AXES = {
    "c": "coefficient c",
    "n": "samples per step n, at equal samples in all",
    "length": "length of the run, 1 = the paper's",
    "sharing": "sharing across rules, 1 = calibrated",
}
DOSE_STUDIES = ("c", "b0", "n", "length", "sharing")
Record = dict[str, Any]


def write_report(record: Record, folder: Path) -> Path:
    """Write `report.md` and `doses.png` into the folder, and return the report's path."""
    draw_doses(record["points"], folder / "doses.png")
    path = folder / "report.md"
    path.write_text(report(record))
    return path


def report(record: Record) -> str:
    """Return the report as Markdown."""
    plan = record["plan"]
    blocks = [
        "# The mechanism: the paper's claims in a tabular model",
        "This is a **model**, not a language model. Its policy is a table of softmax distributions over the rules of "
        "the toy task, its pass@k is exact, and its three learning rates were fitted to the curves of GRPO and to no "
        "run with a bonus; see `experiments/mechanism/README.md`. `make mechanism` writes this page again.",
        f"{len(plan['instances'])} rule tables, {len(plan['seeds'])} seed(s) each, c = {record['coef']:g}, rates "
        f"{_rates(record['rates'])}. The verdicts follow `experiments/lab/verdicts.py`: paired differences, one a "
        "rule table, 95 % t intervals, Holm's correction over all rows. The paper's own effects are those of its "
        "tables, ± one standard error over its seeds.",
        summary(record["claims"]),
        "## Claims",
        claims_table(record["claims"]),
        "A row without a value compares questions that neither run solved, and on this split every question was "
        "solved. *No difference*: smaller than the margin of its measure, which is "
        + ", ".join(f"{measure.margin:g} for {name}" for name, measure in claims.MEASURES.items())
        + ".",
        "## Verdicts under other rates",
        _robustness(record),
        "## Means",
        _levels_table(record["levels"]),
        "## Dose-responses",
        "![Test pass@32 and questions solved against c, n, length and sharing](doses.png)",
        f"Medium questions, {len(plan['dose_instances'])} rule tables. Lines are means over tables, bars their "
        "standard errors. Without any sharing each question has parameters of its own, so there is nothing to measure "
        "on test questions.",
        _slopes(record["points"]),
        *[_dose_table(record["points"], study) for study in DOSE_STUDIES],
        "## Ablations",
        "One change at a time on medium questions; differences from the method itself with 95 % intervals. They are "
        "explorations: no claim of the paper stands behind them, and they are not corrected for their number.",
        _ablations(record["points"]),
        "## Bonus hacking",
        f"Another task, whose answer is no copy of the last step ({len(plan['dose_instances'])} rule tables): see "
        "`experiments/mechanism/hacking.py`. A *slip* is an answer that is not the result of the reasoning before it. "
        "Means over tables ± their standard errors at the end of training, for each `answer_mask_mode`; "
        "`all` equals `policy` here.",
        _hacking(record["hacking"]),
    ]
    return "\n\n".join(blocks) + "\n"


def draw_doses(points: Sequence[Record], path: Path) -> None:
    """Plot two measures against four doses."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6), layout="constrained")
    grid = figure.subplots(2, len(AXES))
    for row, measure in enumerate(("final pass@32", "solved")):
        for column, (study, label) in enumerate(AXES.items()):
            axes = grid[row][column]
            for name, entries in _by_method(points, study):
                shown = [entry for entry in entries if not math.isnan(_nan_mean(entry[measure]))]
                axes.errorbar(
                    [str(entry["value"]) for entry in shown],
                    [_nan_mean(entry[measure]) for entry in shown],
                    yerr=[_error(entry[measure]) for entry in shown],
                    marker="o",
                    markersize=4,
                    color=COLOURS[name],
                    label=LABELS[name],
                )
            axes.set_xlabel(label)
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
            if column == 0:
                axes.set_ylabel({"final pass@32": "test pass@32, last", "solved": "training questions solved"}[measure])
    grid[1][2].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=80)


def _robustness(record: Record) -> str:
    lines = [
        "GRPO's curves leave open how much of the sharing is whose: other rates fit almost as well. The words that "
        "change under them:",
        "",
        "| rates | words that change | from seen to opposite or back | which |",
        "|---|---:|---:|---|",
    ]
    for other in record["other_rates"]:
        changed = [
            (row, word) for row, word in zip(record["claims"], other["words"], strict=True) if row["word"] != word
        ]
        turned = [each for each in changed if {each[0]["word"], each[1]} == {"seen", "opposite"}]
        which = "; ".join(f"{row['statement']} ({row['measure']}, {row['split']})" for row, _ in turned)
        lines.append(
            f"| {_rates(other['rates'])} | {len(changed)} of {len(record['claims'])} | {len(turned)} | {which} |"
        )
    return "\n".join(lines)


def _levels_table(levels: Sequence[Record]) -> str:
    names = [name for name in claims.MEASURES if name in levels[0]]
    lines = [f"| split, method | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for level in sorted(levels, key=lambda level: level["split"] != "easy" and 1 + (level["split"] == "hard")):
        cells = ["" if level[name] is None else f"{level[name]:.3g}" for name in names]
        lines.append(f"| {level['split']}, {_label(level['method'])} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _slopes(points: Sequence[Record]) -> str:
    lines = [
        "Slopes by least squares in each table, per unit of c (or b0), with 95 % intervals over tables:",
        "",
        f"| dose | method | {' | '.join(POINT_MEASURES)} |",
        f"|---|---|{'---:|' * len(POINT_MEASURES)}",
    ]
    for study in ("c", "b0"):
        for name, entries in _by_method(points, study):
            values = [float(entry["value"]) for entry in entries]
            cells = []
            for measure in POINT_MEASURES:
                tables = zip(*(entry[measure] for entry in entries), strict=True)
                cells.append(interval([statistics.linear_regression(values, table).slope for table in tables]))
            lines.append(f"| {study} | {LABELS[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _dose_table(points: Sequence[Record], study: str) -> str:
    groups = list(_by_method(points, study))
    heads = [str(entry["value"]) for entry in groups[0][1]]
    lines = [f"| {study} = | measure | {' | '.join(heads)} |", f"|---|---|{'---:|' * len(heads)}"]
    for name, entries in groups:
        for measure in POINT_MEASURES:
            cells = [_mean_and_error(entry[measure]) for entry in entries]
            lines.append(f"| {LABELS[name]} | {measure} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _ablations(points: Sequence[Record]) -> str:
    lines = [f"| change | method | {' | '.join(POINT_MEASURES)} |", f"|---|---|{'---:|' * len(POINT_MEASURES)}"]
    for study in dict.fromkeys(point["study"] for point in points if point["study"] not in DOSE_STUDIES):
        for name, (without, with_change) in _by_method(points, study):
            cells = [
                interval([b - a for a, b in zip(without[measure], with_change[measure], strict=True)])
                for measure in POINT_MEASURES
            ]
            lines.append(f"| {study} | {LABELS[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _hacking(entries: Sequence[Record]) -> str:
    lines = [
        f"| split | method | c | {' | '.join(f'{measure}, mask {mode}' for measure in MEASURES for mode in MODES)} |",
        f"|---|---|---:|{'---:|' * len(MEASURES) * len(MODES)}",
    ]
    for (split, bonus, c), group in groupby(entries, key=lambda entry: (entry["split"], entry["bonus"], entry["c"])):
        by_mode = {entry["mask"]: entry for entry in group}
        cells = [
            _mean_and_error(by_mode[mode][measure]) if mode in by_mode else "" for measure in MEASURES for mode in MODES
        ]
        lines.append(f"| {split} | {LABELS[bonus]} | {c or ''} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_method(points: Iterable[Record], study: str) -> Iterable[tuple[str, list[Record]]]:
    chosen = [point for point in points if point["study"] == study]
    for name, group in groupby(chosen, key=lambda point: point["name"]):
        yield name, list(group)


def _mean_and_error(values: Sequence[float]) -> str:
    mean = _nan_mean(values)
    if math.isnan(mean):
        return ""
    return f"{mean:.2f} ± {_error(values):.2f}" if mean > 2 else f"{mean:.3f} ± {_error(values):.3f}"


def _nan_mean(values: Sequence[float | None]) -> float:
    return math.nan if None in values else statistics.fmean(value for value in values if value is not None)


def _error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _label(method: str) -> str:
    name, _, samples = method.partition("@")
    return LABELS[name] + (f", n = {samples}" if samples else "")


def _rates(rates: Sequence[float]) -> str:
    own, shared, sharpness = rates
    return f"own {own:g}, shared {shared:g}, sharpness {sharpness:g}"
