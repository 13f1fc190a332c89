"""Plot of the panels of a sweep."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from experiments.bandits.sweeps import Panel

# Colour and width: where curves coincide, the thinner ones are drawn over the thicker.
SIMULATED = [("#d1495b", 2.0), ("#e9a03b", 6.0), ("#4f9d69", 4.0), ("#0b6e99", 1.5)]
LINE_STYLES = ["--", ":", "-.", (0, (1, 3))]
PRINTED = "as printed"  # in the name of a curve of the paper that does not hold


def plot(panels: Sequence[Panel], path: Path) -> None:
    """Draw simulated means in colour, with bars of two standard errors, and exact values and bounds in grey."""
    figure = Figure(figsize=(19, 8.6), layout="constrained")
    for axes, panel in zip(figure.subplots(2, math.ceil(len(panels) / 2)).flat, panels, strict=False):
        _draw(axes, panel)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)


def _draw(axes: Axes, panel: Panel) -> None:
    simulated = [name for name, curve in panel["curves"].items() if curve["standard_error"] is not None]
    exact = [name for name in panel["curves"] if name not in simulated]
    for name, (colour, width) in zip(simulated, SIMULATED[-len(simulated) :], strict=True):
        curve = panel["curves"][name]
        bars = [2 * error for error in curve["standard_error"] or ()]
        means = [mean for mean in curve["mean"] if mean is not None]  # all: only exact curves have holes
        axes.errorbar(
            panel["values"],
            means,
            bars,
            fmt="o-",
            color=colour,
            linewidth=width,
            elinewidth=1.2,
            markersize=4,
            label=name,
        )
    for name, style in zip(exact, LINE_STYLES, strict=False):
        points = [(x, y) for x, y in zip(panel["values"], panel["curves"][name]["mean"], strict=True) if y is not None]
        axes.plot(*zip(*points, strict=True), ls=style, color="#c1121f" if PRINTED in name else "#666666", label=name)
    if panel["y"] == "pulls":
        axes.set_yscale("symlog", linthresh=0.1)  # the search costs nothing where every arm is good
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
    elif panel["y"] == "pseudo-regret":
        axes.set_yscale("log")
        axes.set_ylim(top=10 * axes.get_ylim()[1])  # room for the legend
        if panel["x"] != "rho":
            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(bottom=0)
    axes.set_xticks(panel["values"], [f"{value:,g}" for value in panel["values"]])
    axes.set_xlabel(panel["x"])
    axes.set_ylabel(panel["y"])
    axes.set_title(panel["title"], loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="upper left" if panel["y"] == "pseudo-regret" else "best")
