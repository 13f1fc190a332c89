"""Figures of the report: lines are means over seeds, bands reach from the lowest to the highest seed."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image  # matplotlib needs it too

from experiments.paper.measures import BASE, BASE16, Results, evaluations
from experiments.paper.plan import ABLATIONS, ESTIMATORS, GENTLE, SAMPLED, SUMS, Cell
from experiments.paper.runs import TEST
from experiments.paper.tables import label

COLOURS = {
    BASE: "#8c8c8c",
    BASE16: "#8c8c8c",
    "none": "#d1495b",
    "ucb": "#e9a03b",
    "ucb_mean": "#7b5ea7",
    "ucb_con": "#0b6e99",
    "batch": "#4f9d69",
    "batch_positive": "#a0785a",
    "ucb_con+batch": "#222222",
    "none@16": "#e8a5ad",
    **{name: f"C{index}" for index, name in enumerate((*ESTIMATORS, *SUMS, *GENTLE, *ABLATIONS))},
    **dict(zip(SAMPLED, ("#e9a03b", "#0b6e99"), strict=True)),
    "maxrl": "#2f4b9a",
    "maxrl+batch": "#5a2a82",
    "pkpo": "#dd6b10",
    "pass_at_k": "#8a6d3b",
}


def draw_figures(results: Results, folder: Path) -> dict[str, dict[str, Path]]:
    """Draw every figure of every cell as PNG: cell name -> caption -> file."""
    drawn: dict[str, dict[str, Path]] = {}
    for cell in results.cells:
        drawn[cell.name] = {}
        for name, (caption, figure) in _figures(results, cell).items():
            path = folder / f"{cell.name}-{name}.png"
            save_small(figure, path)
            drawn[cell.name][caption] = path
    return drawn


def _figures(results: Results, cell: Cell) -> dict[str, tuple[str, Figure]]:
    return {
        "sampling": (
            "GRPO as a sampler, compared with the base policy at equal samples. Dashed: questions that the sampler "
            "itself has not solved yet.",
            sampling_figure(results, cell),
        ),
        "training": ("Findings of training so far, under each bonus.", training_figure(results, cell)),
        "test": ("Test pass@k over training.", test_figure(results, cell)),
    }


def sampling_figure(results: Results, cell: Cell) -> Figure:
    """Draw the fraction solved and the distinct answers over the samples per question."""
    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    solved, distinct = figure.subplots(1, 2)
    plan = results.records["plan"]
    base, grpo, n = (BASE, "none", plan["n"]) if "none" in plan["methods"] else (BASE16, "none@16", 16)
    steps = results.runs(cell, base)[0]["steps"]
    samples = [n * (i + 1) for i in range(len(steps))]
    for method in (base, grpo):
        for axes, curve, style in (
            (solved, "solved", "-"),
            (distinct, "distinct", "-"),
            (distinct, "distinct_unsolved", "--"),
        ):
            rows = [
                run[curve] if method == base else [run["curves"][curve][step - 1] for step in steps]
                for run in results.runs(cell, method)
            ]
            name = label(method) + (", unsolved" if style == "--" else "")
            draw_curve(axes, samples, rows, name, COLOURS[method], style)
    for axes, title in (
        (solved, "Training questions solved so far"),
        (distinct, "Distinct answers per question so far"),
    ):
        finish_axes(axes, title, f"samples per question ({n} per epoch)")
    return figure


def training_figure(results: Results, cell: Cell) -> Figure:
    """Draw the fraction solved and the distinct answers on unsolved questions over the steps."""
    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    for axes, curve, title in zip(
        figure.subplots(1, 2),
        ("solved", "distinct_unsolved"),
        ("Training questions solved so far", "Distinct answers so far, questions not solved yet"),
        strict=True,
    ):
        for method in results.records["plan"]["methods"]:
            rows = [run["curves"][curve] for run in results.runs(cell, method)]
            draw_curve(axes, range(1, len(rows[0]) + 1), rows, label(method), COLOURS[method], "-")
        finish_axes(axes, title, "step")
    return figure


def test_figure(results: Results, cell: Cell) -> Figure:
    """Draw test pass@k over the steps, one panel for each k."""
    plan = results.records["plan"]
    first = evaluations(results.runs(cell, plan["methods"][0])[0], TEST)
    ks = list(first[0]["pass_at_k"])
    figure = Figure(figsize=(10, 5.6), layout="constrained")
    for axes, k in zip(figure.subplots(2, -(-len(ks) // 2)).flat, ks, strict=False):
        for method in plan["methods"]:
            tests = [evaluations(run, TEST) for run in results.runs(cell, method)]
            rows = [[row["pass_at_k"][k] for row in test] for test in tests]
            draw_curve(axes, [row["step"] for row in tests[0]], rows, label(method), COLOURS[method], "o-")
        finish_axes(axes, f"pass@{k}", "step", legend=False)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=7, frameon=False, fontsize=8)
    return figure


def draw_curve(
    axes: Axes, x: Sequence[int], rows: Sequence[Sequence[float | None]], name: str, colour: str, style: str
) -> None:
    """Draw the mean and the range of runs; the line ends where no run has a value, such as no unsolved question."""
    columns = [[value for value in column if value is not None] for column in zip(*rows, strict=True)]
    points = [(place, column) for place, column in zip(x, columns, strict=True) if column]
    if not points:
        return
    places = [place for place, _ in points]
    axes.plot(places, [statistics.mean(c) for _, c in points], style, color=colour, label=name, markersize=3, lw=1.6)
    axes.fill_between(
        places, [min(c) for _, c in points], [max(c) for _, c in points], color=colour, alpha=0.13, linewidth=0
    )


def finish_axes(axes: Axes, title: str, xlabel: str, *, legend: bool = True) -> None:
    axes.set_title(title, loc="left", fontsize=10.5)
    axes.set_xlabel(xlabel, fontsize=9)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        axes.legend(frameon=False, fontsize=8)


def save_small(figure: Figure, path: Path, dpi: int = 85) -> None:
    """Save a PNG with a palette of 256 colours: half of the bytes, and no difference to the eye."""
    figure.savefig(path, dpi=dpi)
    with Image.open(path) as image:
        image.convert("RGB").quantize(256).save(path, optimize=True)
