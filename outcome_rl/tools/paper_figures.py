"""Pictures of the paper's figures, as PNG."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator

from outcome_rl.tools.charts import PALETTE

BASE = "base policy"
COLUMNS = 3


class Line(NamedTuple):
    """Mean and range of a measure over runs: points (x, mean, lowest, highest)."""

    method: str
    points: list[tuple[float, float, float, float]]
    runs: int
    dashed: bool = False


class Panel(NamedTuple):
    """Axes with lines."""

    title: str
    xlabel: str
    lines: list[Line]
    log2: bool = False


class Drawing(NamedTuple):
    """A figure of the paper."""

    name: str
    caption: str
    panels: list[Panel]


def draw(drawing: Drawing, methods: Sequence[str], path: Path) -> None:
    """Draw the panels of a figure; a method has the same colour in every figure.

    Args:
        methods: all methods, in the order of their colours; `BASE` is grey.
        path: the PNG to write.
    """
    panels = drawing.panels
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.6 * columns + 0.4, 3.0 * rows + 0.5), layout="constrained", dpi=110)
    grid = figure.subplots(rows, columns, squeeze=False).flat
    for axes in list(grid)[len(panels) :]:
        axes.set_axis_off()
    labels: dict[str, Line2D] = {}
    for axes, panel in zip(figure.axes, panels, strict=False):
        for line in panel.lines:
            labels[_label(line)] = _draw_line(axes, line, _colour(line.method, methods))
        _finish(axes, panel)
    figure.legend(
        list(labels.values()),
        list(labels),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=8,
    )
    figure.savefig(path)


def _draw_line(axes: Axes, line: Line, colour: str) -> Line2D:
    xs, means, lows, highs = zip(*line.points, strict=True)
    few = len(xs) <= 12
    (drawn,) = axes.plot(
        xs, means, "--" if line.dashed else "-", color=colour, lw=1.6, marker="o" if few else "", markersize=3
    )
    axes.fill_between(xs, lows, highs, color=colour, alpha=0.15, linewidth=0)
    return drawn


def _label(line: Line) -> str:
    runs = "" if line.method == BASE else f" ({line.runs} run{'s' * (line.runs > 1)})"
    return line.method + runs + (", unsolved" if line.dashed else "")


def _colour(method: str, methods: Sequence[str]) -> str:
    others = [name for name in methods if name != BASE]
    return PALETTE[-1] if method == BASE else PALETTE[others.index(method) % (len(PALETTE) - 1)]


def _finish(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title, loc="left", fontsize=10)
    axes.set_xlabel(panel.xlabel, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if panel.log2:
        ticks = sorted({x for line in panel.lines for x, *_ in line.points})
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_major_formatter(FixedFormatter([f"{tick:g}" for tick in ticks]))
        axes.minorticks_off()
