"""Pictures of curves, over steps or over k: SVG for the page of `report`, PNG for `analyze`."""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, StrMethodFormatter

from outcome_rl.terminal.text import printable
from outcome_rl_kernels.whole_files import whole_file

PALETTE = ("#1f8bb8", "#d9576a", "#d9942f", "#55a86f", "#9271c2", "#8f8f8f")
FEW = 12  # points of a line that are marked, too
COLUMNS = 3  # panels of a picture beside one another


class Line(NamedTuple):
    """A line through points (x, y), or (x, y, lowest, highest) with a band; a number is the index of its colour."""

    points: Sequence[tuple[float, ...]] = ()
    colour: int = 0
    style: str = "-"
    label: str = ""


class Panel(NamedTuple):
    """Axes with lines; `over_k` has a tick at each k, on a logarithmic axis."""

    title: str
    xlabel: str
    lines: Sequence[Line]
    over_k: bool = False


def over_k(curves: Sequence[tuple[Mapping[str, Any], Line]]) -> list[Panel]:
    """Return panels of pass@k, where it is known, and of diff@k over k.

    Args:
        curves: `pass_at_k` and `diff_at_k` of an evaluation or a report, and how its line looks.
    """
    panels = []
    for name, title in (("pass_at_k", "pass@k"), ("diff_at_k", "diff@k: different answers in k samples")):
        lines = [look._replace(points=[(int(k), y) for k, y in found[name].items()]) for found, look in curves]
        panels.append(Panel(title, "k samples", lines, over_k=True))
    return [panel for panel in panels if any(line.points for line in panel.lines)]


def svg(panels: Sequence[Panel]) -> str:
    """Return panels with one legend below them as SVG text."""
    text = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "outcome_rl"}):
        _figure(panels).savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def png(panels: Sequence[Panel], path: Path) -> None:
    """Draw panels with one legend below them into a file."""
    with whole_file(path) as file:
        _figure(panels).savefig(file, format=path.suffix.removeprefix(".") or None)


def _figure(panels: Sequence[Panel]) -> Figure:
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.6 * columns + 0.4, 3.0 * rows + 0.5), layout="constrained", dpi=110)
    grid = figure.subplots(rows, columns, squeeze=False).flat
    labels: dict[str, Any] = {}
    for axes, panel in zip(grid, panels, strict=False):
        _draw(axes, panel)
        axes.set_title(printable(panel.title), loc="left", fontsize=10, parse_math=False)
        handles, names = axes.get_legend_handles_labels()
        labels |= dict(zip(names, handles, strict=True))
    for axes in figure.axes[len(panels) :]:
        axes.set_axis_off()
    place = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 8}
    for text in figure.legend(list(labels.values()), [*map(printable, labels)], **place).get_texts():
        text.set_parse_math(False)  # names of files and methods are no formulas
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
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
    axes.set_xlabel(panel.xlabel, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(color="black", alpha=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    if panel.over_k:
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
        axes.xaxis.set_major_locator(FixedLocator(sorted({x for line in panel.lines for x, *_ in line.points})))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:.10g}"))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.4g}"))
    low, high = axes.dataLim.intervaly
    if 0 <= low <= high:  # from 0, so that noise does not fill the axis
        axes.set_ylim(0, 1.08 * high or 1)
