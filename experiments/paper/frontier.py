"""pass@k and diff@k at the end of training, of every method and ablation of a cell: a figure and a table.

Both need only a part of the records of a plan with one cell; results/2026-11-20/frontier.json is such a part.
"""

import statistics
from pathlib import Path

from matplotlib.figure import Figure

from experiments.paper.figures import draw_curve, finish_axes, save_small
from experiments.paper.measures import BASE, Record, Results, evaluations
from experiments.paper.plan import METHODS
from experiments.paper.runs import TEST
from experiments.paper.tables import label, table

COLOURS = ["#d1495b", "#0b6e99", "#4f9d69", "#e9a03b", "#7b5ea7", "#555555"]
TITLES = {"pass_at_k": "pass@k", "diff_at_k": "diff@k: distinct answers in k samples"}


def draw(results: Results, path: Path) -> None:
    """Draw both metrics over k for the only cell of a plan: means over seeds, bands from lowest to highest."""
    runs = runs_of(results)
    plan = results.records["plan"]
    figure = Figure(figsize=(9.5, 3.9), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, (metric, title) in zip(panels, TITLES.items(), strict=True):
        ks = [int(k) for k in last_test(runs[label(BASE)][0])[metric]]
        for name, colour in zip(runs, ["#999999", *COLOURS], strict=False):
            rows = [[last_test(run)[metric][str(k)] for k in ks] for run in runs[name]]
            draw_curve(axes, ks, rows, name, colour, "o--" if name == label(BASE) else "o-")
        axes.set_xscale("log", base=2)
        axes.set_xticks(ks, [str(k) for k in ks])
        finish_axes(axes, title, "k samples", legend=metric == "diff_at_k")
    figure.suptitle(
        f"Toy task, {plan['test_questions']} test questions, {plan['steps']} steps, {len(plan['seeds'])} seeds",
        fontsize=11,
    )
    save_small(figure, path, dpi=140)


def metrics_table(results: Results) -> str:
    """Return the mean over seeds (lowest to highest) of the main metrics, in Markdown.

    The solved fraction is that of a run's samples; the base policy draws none in training.
    """
    rows = []
    for name, runs in runs_of(results).items():
        tests = [last_test(run) for run in runs]
        cells = [_range([test["pass_at_k"][k] for test in tests], 3) for k in ("1", "8", "32")]
        solved = [run["curves"]["solved"][-1] for run in runs if "curves" in run]
        cells += [_range([test["diff_at_k"]["32"] for test in tests], 2), _range(solved, 3) if solved else ""]
        rows.append([name, *cells])
    return table(["", "pass@1", "pass@8", "pass@32", "diff@32", "training questions solved"], rows)


def runs_of(results: Results) -> dict[str, list[Record]]:
    """Return the runs of the only cell, by label with coefficient; the base policy first."""
    (cell,) = results.cells
    plan = results.records["plan"]
    methods = [BASE, *plan["methods"], *plan["ablations"]]
    return {_label(method): results.runs(cell, method) for method in methods}


def last_test(run: Record) -> Record:
    """Return the evaluation on the test questions after the last step."""
    return evaluations(run, TEST)[-1]


def _label(method: str) -> str:
    if method not in METHODS or METHODS[method].bonus == "none":
        return label(method)
    return f"{label(method)}, c = {METHODS[method].coef[0]}"


def _range(values: list[float], digits: int) -> str:
    mean, low, high = statistics.mean(values), min(values), max(values)
    return f"{mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
