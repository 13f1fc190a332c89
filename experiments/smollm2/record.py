"""Record of the long runs: the evaluations of each, the methods compared, a table and a plot."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments.paper.figures import COLOURS, draw_curve, finish_axes, save_small
from experiments.paper.measures import BASE
from experiments.paper.tables import label, table
from outcome_rl.bench.record import write_result
from outcome_rl.grpo.run.compare import compare_runs
from outcome_rl.grpo.run.report import Run, read_run

RESULTS = Path(__file__).parent / "results"
NAME = "smollm2"
METRICS = ("pass_at_k", "diff_at_k")
SPLITS = ("validation", "test")


def write_record(runs: Mapping[str, Sequence[Path]], folder: Path = RESULTS) -> Path:
    """Write the record of finished runs; return its path.

    Args:
        runs: method -> the folders of its runs; the others are compared with the first method.
        folder: made if it does not exist.
    """
    read = {method: [read_run(one) for one in folders] for method, folders in runs.items()}
    first = next(iter(read.values()))[0]
    figures = {
        "methods": {method: [_figures(run) for run in of_method] for method, of_method in read.items()},
        "verdicts": compare_runs([one for folders in runs.values() for one in folders])["verdicts"],
    }
    return write_result(folder, NAME, first.config, figures)


def results_table(figures: Mapping[str, Any]) -> str:
    """Return mean ± standard deviation over the seeds on the test questions, before and after, in Markdown."""
    methods = figures["methods"]
    before = {BASE: [run["evaluations"]["test"][0] for run in methods["none"]]}
    after = {method: [run["evaluations"]["test"][-1] for run in runs] for method, runs in methods.items()}
    rows = []
    for method, tests in {**before, **after}.items():
        columns = [("pass_at_k", "1", 3), ("pass_at_k", "32", 3), ("diff_at_k", "32", 2)]
        cells = [_spread([test[metric][k] for test in tests], digits) for metric, k, digits in columns]
        minutes = [run["minutes"] for run in methods.get(method, [])]
        rows.append([label(method), str(len(tests)), *cells, f"{statistics.mean(minutes):.0f}" if minutes else ""])
    return table(["", "seeds", "pass@1", "pass@32", "distinct answers in 32 samples", "minutes a run"], rows)


def verdicts_table(figures: Mapping[str, Any]) -> str:
    """Return the differences from GRPO with their 95 % intervals over the seeds, in Markdown."""
    rows = []
    for row in figures["verdicts"]:
        if row["measure"].startswith("last "):
            low, high = row["interval"]
            interval = f"{row['mean']:+.3f} ({low:+.3f} to {high:+.3f})"
            rows.append([label(row["left"].removeprefix("bonus=")), row["measure"], interval, row["verdict"]])
    return table(["against GRPO", "on the test questions", "difference (95 % interval)", "verdict"], rows)


def draw(figures: Mapping[str, Any], path: Path) -> None:
    """Draw pass@1 and pass@32 on the validation questions over the steps: means, and bands from lowest to highest."""
    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    for axes, k in zip(figure.subplots(1, 2), ("1", "32"), strict=True):
        for method, runs in figures["methods"].items():
            watched = [run["evaluations"]["validation"] for run in runs]
            rows = [[row["pass_at_k"][k] for row in evaluations] for evaluations in watched]
            draw_curve(axes, [row["step"] for row in watched[0]], rows, label(method), COLOURS[method], "o-")
        finish_axes(axes, f"pass@{k}", "step", legend=k == "1")
    save_small(figure, path, dpi=140)


def _figures(run: Run) -> dict[str, Any]:
    evaluations: dict[str, list[dict[str, Any]]] = {}
    for row in run.evaluations:
        kept = {"step": row["step"], "questions": row["n_questions"]} | {metric: row[metric] for metric in METRICS}
        split = next(split for split in SPLITS if row["dataset"].endswith(split))
        evaluations.setdefault(split, []).append(kept)
    seconds = [row["time/step_s"] for row in run.metrics] + [row["time/evaluate_s"] for row in run.evaluations]
    return {
        "seed": run.config["trainer"]["seed"],
        "evaluations": evaluations,
        "correct_rate": [row["outcomes/correct_rate"] for row in run.metrics],
        "distinct_in_group": [row["outcomes/distinct_in_group"] for row in run.metrics],
        "minutes": sum(seconds) / 60,
    }


def _spread(values: Sequence[float], digits: int) -> str:
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"
