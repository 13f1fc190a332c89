"""Table of pass@k and diff@k at the end of training, of every method and ablation of a cell.

It needs only a part of the result file of a plan with one cell; results/2026-11-20/frontier.json is such a part.
"""

import statistics

from experiments.paper.measures import BASE, Record, Results, evaluations
from experiments.paper.plan import METHODS
from experiments.paper.runs import TEST
from experiments.paper.tables import label, table


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
    return f"{label(method)}, c = {METHODS[method].coef}"


def _range(values: list[float], digits: int) -> str:
    mean, low, high = statistics.mean(values), min(values), max(values)
    return f"{mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
