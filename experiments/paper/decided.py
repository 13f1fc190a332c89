"""Figure of the README: the studies that decide, one dot a rule table.

Left: share of the training questions solved, on questions that the base policy failed 512 times. Right: pass@1 and
pass@32 on test questions after training on questions as the task draws them.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.paper.figures import COLOURS, save_small
from experiments.paper.measures import BASE, Measure, Results, final, solved
from experiments.paper.tables import label
from outcome_rl.tools.verdicts import estimate


def draw(confirm: Results, hard: Results, path: Path) -> None:
    """Draw both studies."""
    figure = Figure(figsize=(10.5, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _panel(left, hard, (BASE, "none", "ucb_con", "batch"), solved, "Hard questions solved in training")
    methods = (BASE, "none", "ucb_con", "batch", "batch_positive")
    _panel(middle, confirm, methods, final(1), "Test pass@1 after medium questions")
    _panel(right, confirm, methods, final(32), "Test pass@32 after medium questions")
    save_small(figure, path, dpi=110)


def values(results: Results, method: str, measure: Measure) -> list[float]:
    """Return a measure's mean over the seeds, one entry a rule table."""
    return [statistics.fmean(measure(run) for run in results.runs(cell, method)) for cell in results.cells]


def _panel(axes: Axes, results: Results, methods: Sequence[str], measure: Measure, title: str) -> None:
    names = []
    for place, method in enumerate(methods):
        found = values(results, method, measure)
        spread = [place + 0.22 * (i / (len(found) - 1) - 0.5) for i in range(len(found))]
        axes.scatter(spread, found, s=12, color=COLOURS[method], alpha=0.45, linewidth=0)
        mean, *_ = estimate(found)
        axes.hlines(mean, place - 0.3, place + 0.3, color=COLOURS[method], lw=2.2)
        names.append(
            f"{label(method)}\n{mean:.3f}".replace("base policy", "base").replace("Batch-Positive", "Positive")
        )
    axes.set_xticks(range(len(methods)), names)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlim(-0.5, len(methods) - 0.5)
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
