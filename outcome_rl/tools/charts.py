"""Charts of runs as SVG text, drawn from their files.

With one run each metric has a colour; with several each run has a colour and each metric a line style. Charts hold no
text of the user. Everything drawn in `INK` takes the text colour of the page.

Tick labels carry their own power (`2e-6`, `150k`), so no multiplier or offset stands apart. A line that later lines
cover is drawn as a wide pale band under them.
"""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, Formatter, MaxNLocator

Rows = Sequence[Mapping[str, Any]]
PALETTE = ("#1f8bb8", "#d9576a", "#d9942f", "#55a86f", "#9271c2", "#8f8f8f")  # readable on light and on dark
LINES = ("-", "--", ":")
INK = "#010203"
WIDTH_PT, HEIGHT_PT, TICK_PT, LEGEND_PT = 316.8, 187.2, 9, 8
LEAST_SPAN = 0.2  # of an axis that does not begin at 0, relative to the largest value
UNITS = {9: "G", 6: "M", 3: "k"}  # power of ten -> its letter
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
}
RATES = {"outcomes/correct_rate", "exploration/solved_fraction"}
TIMES = {"rollout": "rollouts", "outcomes": "outcomes", "reference": "reference", "update": "update"}


def training_charts(runs: Sequence[Rows]) -> dict[str, str]:
    """Draw title -> chart from the rows of `metrics.jsonl` of each run; metrics that no run has are left out."""
    charts = {}
    for title, quantities in TRAINING.items():
        figure, axes = _axes()
        for run, rows in enumerate(runs):
            for number, (name, label) in enumerate(quantities.items()):
                points = [(row["step"], row[name]) for row in rows if name in row]
                colour, line = (run, LINES[number]) if len(runs) > 1 else (number, "-")
                _line(axes, points, colour, line, label if run == 0 else "")
        if axes.lines:
            charts[title] = _svg(figure, axes, "step", rate=bool(RATES & {*quantities}))
    if any(runs):
        charts["Time of a step (s)"] = _time_chart(runs)
    return charts


def evaluation_charts(runs: Sequence[Rows]) -> dict[str, str]:
    """Draw title -> chart over steps from the rows of `evaluations.jsonl` of each run, for one data set."""
    largest = max((max(row["pass_at_k"], key=int) for rows in runs for row in rows), key=int)
    charts = {}
    for figure_name, k in dict.fromkeys([("pass", "1"), ("pass", largest), ("diff", largest)]):
        figure, axes = _axes()
        for run, rows in enumerate(runs):
            at_k = [(row["step"], row[f"{figure_name}_at_k"].get(k)) for row in rows]
            _line(axes, [point for point in at_k if point[1] is not None], run, marker="o")
        charts[f"{figure_name}@{k}"] = _svg(figure, axes, "step", rate=figure_name == "pass")
    return charts


def comparison_charts(pairs: Sequence[tuple[int, Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, str]:
    """Draw title -> chart over k, base (dashed) against trained, from (index of the run, base row, trained row)."""
    charts = {}
    for metric, title in (("pass_at_k", "pass@k"), ("diff_at_k", "diff@k: distinct answers in k samples")):
        figure, axes = _axes()
        ks: set[int] = set()
        for run, base, trained in pairs:
            for row, line, label in ((trained, "-", "trained"), (base, "--", "base")):
                at_k = {int(k): value for k, value in row[metric].items()}
                _line(axes, at_k.items(), run, line, label if run == pairs[0][0] else "", marker="o")
                ks |= at_k.keys()
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
        charts[title] = _svg(figure, axes, "k samples", sorted(ks), rate=metric == "pass_at_k")
    return charts


def _time_chart(runs: Sequence[Rows]) -> str:
    """Draw the stacked parts of a step for one run, or the whole step for several."""
    figure, axes = _axes()
    fields = [*(f"time/{part}_s" for part in TIMES), "time/step_s"]
    runs = [[row for row in rows if all(field in row for field in fields)] for rows in runs]
    if len(runs) == 1:
        (rows,) = runs
        parts = [[row[f"time/{part}_s"] for row in rows] for part in TIMES]
        axes.stackplot([row["step"] for row in rows], parts, labels=list(TIMES.values()), colors=PALETTE, alpha=0.8)
    for run, rows in enumerate(runs):
        points = [(row["step"], row["time/step_s"]) for row in rows]
        if len(runs) > 1 or len(points) == 1:
            _line(axes, points, run)
    axes.set_ylim(bottom=0)
    return _svg(figure, axes, "step")


def _axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH_PT / 72, HEIGHT_PT / 72), layout="constrained")
    return figure, figure.subplots()


def _line(
    axes: Axes, points: Iterable[tuple[int, float]], colour: int, line: str = "-", label: str = "", marker: str = ""
) -> None:
    points = [(x, value) for x, value in points if math.isfinite(value)]
    if not points:
        return
    xs, values = zip(*points, strict=True)
    axes.plot(
        xs,
        values,
        line,
        color=PALETTE[colour % len(PALETTE)],
        linewidth=1.6,
        marker=marker or ("o" if len(xs) == 1 else ""),  # a line through one point is invisible
        markersize=3,
        label=label or None,
    )


def _svg(figure: Figure, axes: Axes, abscissa: str, ticks: Sequence[float] | None = None, *, rate: bool = False) -> str:
    """Finish a chart and return it as SVG text.

    Args:
        ticks: where the abscissa has its ticks; None for whole numbers.
        rate: whether the values are fractions, whose axis starts at 0 and ends at 1, or at 0.1, 0.01, ... above values
            that are all smaller.
    """
    axes.set_xlabel(abscissa, color=INK)
    axes.tick_params(colors=INK, labelsize=TICK_PT)
    axes.grid(color=INK, alpha=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    _separate(axes.lines)
    _fit_values(axes, rate=rate)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True) if ticks is None else FixedLocator(ticks))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_TickLabels())
    legend = [label for label in axes.get_legend_handles_labels()[1] if not label.startswith("_")]
    if legend:  # above the axes, where it covers nothing
        shown = axes.legend(
            loc="lower right",
            bbox_to_anchor=(1, 1),
            ncols=len(legend),
            frameon=False,
            fontsize=LEGEND_PT,
            labelcolor=INK,
            borderaxespad=0,
            borderpad=0.2,
            columnspacing=1.2,
            handlelength=2.4,
        )
        for line in shown.get_lines():
            line.set(linewidth=1.6, markersize=3, alpha=1)
    text = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": abscissa}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :].replace(INK, "currentColor")


def _separate(lines: Sequence[Line2D]) -> None:
    """Widen each line by the number of later ones that run along it, so that none is hidden."""
    covering = [sum(_coincide(line, later) for later in lines[index + 1 :]) for index, line in enumerate(lines)]
    step_pt = min(2.6, 8 / max(covering, default=1)) if any(covering) else 0.0
    for line, covers in zip(lines, covering, strict=True):
        if covers:
            line.set(linewidth=1.6 + step_pt * covers, markersize=3 + step_pt * covers, alpha=0.45)


def _coincide(one: Line2D, other: Line2D) -> bool:
    """Return whether most shared points of two lines are equal, up to a hundredth of their range."""
    a, b = (dict(np.asarray(line.get_xydata()).tolist()) for line in (one, other))
    shared = a.keys() & b.keys()
    values = [*a.values(), *b.values()]
    near = 0.01 * (max(values) - min(values))
    equal = sum(abs(a[x] - b[x]) <= near for x in shared)
    return bool(2 * equal > len(shared) and equal >= min(2, len(a), len(b)))  # two runs share their first point


def _fit_values(axes: Axes, *, rate: bool) -> None:
    """Set the range of the values: from 0 where none is negative, else not so narrow that noise fills it."""
    low, high = axes.dataLim.intervaly
    if low > high:  # no data
        return
    if rate and low >= 0 and high <= 1:
        axes.set_ylim(0, max(1e-3, 10.0 ** math.ceil(math.log10(high))) if high > 0 else 1)
        for line in axes.lines:
            line.set_clip_on(False)  # half of a line along the edge would be cut off
        return
    bottom, top = axes.get_ylim()
    missing = LEAST_SPAN * max(abs(low), abs(high)) - (top - bottom)
    if missing > 0:
        bottom, top = bottom - missing / 2, top + missing / 2
    axes.set_ylim(0 if low >= 0 else bottom, top if high > 0 or low < 0 else 1)


class _TickLabels(Formatter):
    """Labels of those ticks of an axis that are in range, by `tick_labels`."""

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        assert self.axis is not None
        low, high = sorted(self.axis.get_view_interval())
        room = 1e-9 * (high - low)
        labels = iter(tick_labels([tick for tick in values if low - room <= tick <= high + room]))
        return [next(labels) if low - room <= tick <= high + room else "" for tick in values]


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Write ticks with the same power and number of decimals, such as `0.5`, `2.0e-6` or `150k`."""
    top = max(map(abs, ticks), default=0.0)
    if top == 0:
        return ["0" for _ in ticks]
    power = math.floor(math.log10(top))
    if -3 <= power < 4:
        power, unit = 0, ""
    elif power > 0 and power < 12:
        power = power // 3 * 3
        unit = UNITS[power]
    else:
        unit = f"e{power}"
    scaled = np.asarray(ticks) / 10.0**power
    apart = min(np.diff(np.unique(scaled)), default=1.0)
    decimals = next((d for d in range(12) if np.abs(scaled - scaled.round(d)).max() < 1e-3 * apart), 12)
    return ["0" if tick == 0 else f"{tick:.{decimals}f}{unit}" for tick in scaled]
