"""Charts of runs: lines over steps or over k, as SVG for the report and as PNG for the paper's figures.

In a report with one run each metric has a colour; with several each run has a colour and each metric a line style. Its
charts hold no text of the user, and everything drawn in `INK` takes the text colour of the page.
"""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, StrMethodFormatter

Rows = Sequence[Mapping[str, Any]]
PALETTE = ("#1f8bb8", "#d9576a", "#d9942f", "#55a86f", "#9271c2", "#8f8f8f")  # readable on light and on dark
STYLES = ("-", "--", ":")
INK = "#010203"
FEW = 12  # points of a line that are marked, too
COLUMNS = 3  # panels of a picture beside one another
# Title -> the metrics of metrics.jsonl in one chart, with their legend.
TRAINING = {
    "Correct responses of the batch": {"outcomes/correct_rate": ""},
    "Reward, mean of the batch": {"reward/mean": ""},
    "Training questions solved so far": {"exploration/solved_fraction": ""},
    "Distinct answers per question so far": {
        "exploration/distinct_answers": "all questions seen",
        "exploration/distinct_answers_unsolved": "not yet solved",
    },
    "Distinct answers in a group": {
        "outcomes/distinct_in_group_solved": "groups with a correct answer",
        "outcomes/distinct_in_group_unsolved": "without",
    },
    "Token entropy (nats)": {"entropy/correct": "correct responses", "entropy/incorrect": "incorrect"},
    "KL to the base policy (nats per token)": {"actor/kl": ""},
    "Exploration bonus, mean size": {"exploration/bonus_abs_mean": ""},
    "Response length (tokens)": {"response/tokens_mean": ""},
    "Time of a step (s)": {"time/step_s": "in all", "time/rollout_s": "rollouts", "time/update_s": "update"},
}
RATES = {"Correct responses of the batch", "Training questions solved so far"}


class Line(NamedTuple):
    """A line through points (x, y), or (x, y, lowest, highest) with a band; a number is the index of its colour."""

    points: Sequence[tuple[float, ...]]
    colour: int
    style: str = "-"
    label: str = ""


class Panel(NamedTuple):
    """Axes with lines; `rate` is the axis of fractions, `over_k` has a tick at each power of two."""

    title: str
    xlabel: str
    lines: Sequence[Line]
    rate: bool = False
    over_k: bool = False


def training_charts(runs: Sequence[Rows]) -> dict[str, str]:
    """Draw title -> chart from the rows of `metrics.jsonl` of each run; metrics that no run has are left out."""
    charts = {}
    for title, metrics in TRAINING.items():
        lines = []
        for run, rows in enumerate(runs):
            for number, (name, label) in enumerate(metrics.items()):
                colour, style = (run, STYLES[number]) if len(runs) > 1 else (number, "-")
                points = [(row["step"], row[name]) for row in rows if name in row]
                lines.append(Line(points, colour, style, label if run == 0 else ""))
        if any(line.points for line in lines):
            charts[title] = svg(Panel(title, "step", lines, rate=title in RATES))
    return charts


def evaluation_charts(runs: Sequence[Rows]) -> dict[str, str]:
    """Draw title -> chart over steps from the rows of `evaluations.jsonl` of each run, for one data set."""
    largest = max((max(row["pass_at_k"], key=int) for rows in runs for row in rows), key=int)
    charts = {}
    for metric, k in dict.fromkeys([("pass", "1"), ("pass", largest), ("diff", largest)]):
        at_k = [[(row["step"], row[f"{metric}_at_k"][k]) for row in rows if k in row["pass_at_k"]] for rows in runs]
        lines = [Line(points, run) for run, points in enumerate(at_k)]
        charts[f"{metric}@{k}"] = svg(Panel(f"{metric}@{k}", "step", lines, rate=metric == "pass"))
    return charts


def comparison_charts(pairs: Sequence[tuple[int, Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, str]:
    """Draw title -> chart over k, base (dashed) against trained, from (index of the run, base row, trained row)."""
    charts = {}
    for metric, title in (("pass_at_k", "pass@k"), ("diff_at_k", "diff@k: distinct answers in k samples")):
        lines = [
            Line([(int(k), at_k) for k, at_k in row[metric].items()], run, style, label if run == pairs[0][0] else "")
            for run, base, trained in pairs
            for row, style, label in ((trained, "-", "trained"), (base, "--", "base"))
        ]
        charts[title] = svg(Panel(title, "k samples", lines, rate=metric == "pass_at_k", over_k=True))
    return charts


def svg(panel: Panel) -> str:
    """Draw one panel, with its legend above the axes and without its title; return SVG text."""
    figure = Figure(figsize=(4.4, 2.6), layout="constrained")
    axes = figure.subplots()
    plot(axes, panel, INK)
    labels = axes.get_legend_handles_labels()[1]
    if labels:
        place = {"loc": "lower right", "bbox_to_anchor": (1, 1), "borderaxespad": 0, "borderpad": 0.2}
        spacing = {"columnspacing": 1.2, "handlelength": 2.4}
        axes.legend(ncols=len(labels), frameon=False, fontsize=8, labelcolor=INK, **place, **spacing)
    text = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": panel.xlabel}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :].replace(INK, "currentColor")


def png(panels: Sequence[Panel], path: Path) -> None:
    """Draw panels with one legend below them into a file."""
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.6 * columns + 0.4, 3.0 * rows + 0.5), layout="constrained", dpi=110)
    grid = figure.subplots(rows, columns, squeeze=False).flat
    labels: dict[str, Any] = {}
    for axes, panel in zip(grid, panels, strict=False):
        plot(axes, panel)
        axes.set_title(panel.title, loc="left", fontsize=10)
        handles, names = axes.get_legend_handles_labels()
        labels |= dict(zip(names, handles, strict=True))
    for axes in figure.axes[len(panels) :]:
        axes.set_axis_off()
    place = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 8}
    for text in figure.legend(list(labels.values()), list(labels), **place).get_texts():
        text.set_parse_math(False)  # names of files and methods are no formulas
    figure.savefig(path)


def plot(axes: Axes, panel: Panel, ink: str = "black") -> None:
    """Draw the lines of a panel, without points that are not finite; ticks carry their own power of ten."""
    for line in panel.lines:
        columns = list(zip(*(point for point in line.points if all(map(math.isfinite, point))), strict=True))
        if not columns:
            continue
        xs, ys, *band = columns
        colour, marker = PALETTE[line.colour % len(PALETTE)], "o" if len(xs) <= FEW else ""
        axes.plot(
            xs, ys, line.style, color=colour, lw=1.6, marker=marker, ms=3, label=line.label or None, clip_on=False
        )
        if band:
            lows, highs = band
            axes.fill_between(xs, lows, highs, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel(panel.xlabel, color=ink, fontsize=9)
    axes.tick_params(colors=ink, labelsize=8)
    axes.grid(color=ink, alpha=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(ink)
    if panel.over_k:
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
        axes.xaxis.set_major_locator(FixedLocator(sorted({x for line in panel.lines for x, *_ in line.points})))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:.10g}"))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.4g}"))
    low, high = axes.dataLim.intervaly
    if panel.rate and 0 <= low <= high <= 1:
        axes.set_ylim(0, max(1e-3, 10.0 ** math.ceil(math.log10(high))) if high > 0 else 1)
    elif 0 <= low <= high:  # from 0, so that noise does not fill the axis
        axes.set_ylim(bottom=0, top=None if high > 0 else 1)
