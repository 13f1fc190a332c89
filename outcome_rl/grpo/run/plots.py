"""Charts of runs as SVG text, drawn from their records.

With one run each metric has a colour; with several each run has a colour and each metric a line style. Charts hold no
text of the user. Everything drawn in `INK` takes the text colour of the page.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

Rows = Sequence[Mapping[str, Any]]
PALETTE = ("#1f8bb8", "#d9576a", "#d9942f", "#55a86f", "#9271c2", "#8f8f8f")  # readable on light and on dark
LINES = ("-", "--", ":")
INK = "#010203"
# Title -> the metrics of metrics.jsonl in one chart, with their legend.
TRAINING = {
    "Correct responses of the batch": {"outcomes/correct_rate": ""},
    "Reward, mean of the batch": {"reward/mean": ""},
    "Training questions solved so far": {"exploration/solved_fraction": ""},
    "Distinct answers a question so far": {
        "exploration/distinct_answers": "all questions seen",
        "exploration/distinct_answers_unsolved": "not yet solved",
    },
    "Distinct answers in a group": {
        "outcomes/distinct_in_group_solved": "groups with a correct answer",
        "outcomes/distinct_in_group_unsolved": "without",
    },
    "Token entropy (nats)": {"entropy/correct": "correct responses", "entropy/incorrect": "incorrect"},
    "KL to the base policy (nats a token)": {"actor/kl": ""},
    "Exploration bonus, mean size": {"exploration/bonus_abs_mean": ""},
    "Response length (tokens)": {"response/tokens_mean": ""},
}
TIMES = {"rollout": "rollouts", "outcomes": "outcomes", "reference": "reference", "update": "update"}


def training_charts(runs: Sequence[Rows]) -> dict[str, str]:
    """Draw title -> chart from the rows of `metrics.jsonl` of each run; metrics that no run has are left out."""
    charts = {}
    for title, quantities in TRAINING.items():
        figure, axes = _axes()
        for run, rows in enumerate(runs):
            for number, (name, label) in enumerate(quantities.items()):
                points = [(row["step"], row[name]) for row in rows if name in row]
                _line(axes, points, run, number, len(runs), label)
        if axes.lines:
            charts[title] = _svg(figure, axes, "step")
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
            _line(axes, [point for point in at_k if point[1] is not None], run, 0, len(runs), "", marker="o")
        charts[f"{figure_name}@{k}"] = _svg(figure, axes, "step")
    return charts


def comparison_charts(pairs: Sequence[tuple[int, Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, str]:
    """Draw title -> chart over k, base (dashed) against trained, from (index of the run, base row, trained row)."""
    charts = {}
    for metric, title in (("pass_at_k", "pass@k"), ("diff_at_k", "diff@k: distinct answers in k samples")):
        figure, axes = _axes()
        ks: set[int] = set()
        for run, base, trained in pairs:
            for row, line, label in ((base, "--", "base"), (trained, "-", "trained")):
                axes.plot(
                    [int(k) for k in row[metric]],
                    list(row[metric].values()),
                    line,
                    color=PALETTE[run % len(PALETTE)],
                    marker="o",
                    markersize=3,
                    label=label if run == pairs[0][0] else None,
                )
                ks |= {int(k) for k in row[metric]}
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted(ks), [str(k) for k in sorted(ks)])
        axes.minorticks_off()
        charts[title] = _svg(figure, axes, "k samples", whole=False)
    return charts


def _time_chart(runs: Sequence[Rows]) -> str:
    """Draw the stacked parts of a step for one run, or the whole step for several."""
    figure, axes = _axes()
    if len(runs) == 1:
        (rows,) = runs
        parts = [[row[f"time/{part}_s"] for row in rows] for part in TIMES]
        axes.stackplot([row["step"] for row in rows], parts, labels=list(TIMES.values()), colors=PALETTE, alpha=0.8)
    for run, rows in enumerate(runs):
        points = [(row["step"], row["time/step_s"]) for row in rows]
        if len(runs) > 1 or len(points) == 1:
            _line(axes, points, run, 0, len(runs), "")
    axes.set_ylim(bottom=0)
    return _svg(figure, axes, "step")


def _axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(4.4, 2.6))
    figure.subplots_adjust(left=0.13, right=0.98, bottom=0.18, top=0.97)  # a layout engine would take as long again
    return figure, figure.subplots()


def _line(
    axes: Axes, points: Iterable[tuple[int, float]], run: int, number: int, runs: int, label: str, marker: str = ""
) -> None:
    steps, values = zip(*points, strict=True) if (points := list(points)) else ((), ())
    if not steps:
        return
    axes.plot(
        steps,
        values,
        color=PALETTE[(run if runs > 1 else number) % len(PALETTE)],
        linestyle=LINES[number] if runs > 1 else "-",
        linewidth=1.6,
        marker=marker or ("o" if len(steps) == 1 else ""),  # a line through one point is invisible
        markersize=3,
        label=label if run == 0 else None,
    )


def _svg(figure: Figure, axes: Axes, abscissa: str, *, whole: bool = True) -> str:
    axes.set_xlabel(abscissa, color=INK)
    if whole:
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        axes.ticklabel_format(useOffset=False)
    axes.tick_params(colors=INK, labelsize=9)
    axes.grid(color=INK, alpha=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    if any(not label.startswith("_") for label in axes.get_legend_handles_labels()[1] if label):
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    text = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": abscissa}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :].replace(INK, "currentColor")
