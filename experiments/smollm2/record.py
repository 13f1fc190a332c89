"""Record of the long runs: the evaluations of each, the methods compared, a table and a plot."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bench.result_file import write_result
from experiments.lab.comparison import WORDS, compare_methods, margin
from experiments.lab.verdicts import Case, judge
from experiments.paper.figures import COLOURS, draw_curve, finish_axes, save_small
from experiments.paper.measures import BASE
from experiments.paper.tables import label, table
from outcome_rl.tools.runs import Run, read_run

RESULTS = Path(__file__).parent / "results"
NAME = "smollm2"
METRICS = ("pass_at_k", "diff_at_k")
MEASURES = (("pass_at_k", "1"), ("pass_at_k", "32"), ("diff_at_k", "32"))
SPLITS = ("validation", "test")
WARM_STARTED = "warm-started policy"


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
        "verdicts": compare_methods([one for folders in runs.values() for one in folders])["verdicts"],
    }
    return write_result(folder, NAME, first.config, figures)


def results_table(figures: Mapping[str, Any]) -> str:
    """Return mean ± standard deviation over the seeds on the test questions, before and after, in Markdown.

    Before is the policy of the supervised warm start, from which all runs begin.
    """
    methods = figures["methods"]
    before = {BASE: [run["evaluations"]["test"][0] for run in methods["none"]]}
    after = {method: [run["evaluations"]["test"][-1] for run in runs] for method, runs in methods.items()}
    rows = []
    for method, tests in {**before, **after}.items():
        cells = [spread([test[metric][k] for test in tests]) for metric, k in MEASURES]
        minutes = [run["minutes"] for run in methods.get(method, [])]
        name = WARM_STARTED if method == BASE else label(method)
        rows.append([name, str(len(tests)), *cells, f"{statistics.mean(minutes):.0f}" if minutes else ""])
    return table(["", "seeds", *(_name(*measure) for measure in MEASURES), "minutes per run"], rows)


def verdicts_table(figures: Mapping[str, Any]) -> str:
    """Return differences on the test questions with their 95 % intervals over the seeds, in Markdown.

    GRPO is compared with the warm-started policy before it, the others with GRPO.
    """
    rows = []
    for (metric, k), verdict in zip(MEASURES, judge(_changes(figures["methods"]["none"])), strict=True):
        interval = _interval(verdict.mean, verdict.low, verdict.high)
        rows.append([label("none"), WARM_STARTED, _name(metric, k), interval, WORDS[verdict.word]])
    for row in figures["verdicts"]:
        if row["measure"].startswith("last "):
            left = label(row["left"].removeprefix("bonus="))
            interval = _interval(row["mean"], *row["interval"])
            rows.append([left, label("none"), row["measure"].removeprefix("last "), interval, row["verdict"]])
    return table(["", "against", "", "difference (95 % interval)", "verdict"], rows)


def draw(figures: Mapping[str, Any], path: Path) -> None:
    """Draw `MEASURES` on the validation questions over the steps: means, and bands from lowest to highest."""
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    for axes, (metric, k) in zip(figure.subplots(1, len(MEASURES)), MEASURES, strict=True):
        for method, runs in figures["methods"].items():
            watched = [run["evaluations"]["validation"] for run in runs]
            rows = [[row[metric][k] for row in evaluations] for evaluations in watched]
            draw_curve(axes, [row["step"] for row in watched[0]], rows, label(method), COLOURS[method], "o-")
        finish_axes(axes, _name(metric, k), "step", legend=k == "1")
    save_small(figure, path, dpi=120)


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


def _changes(runs: Sequence[Mapping[str, Any]]) -> list[Case]:
    """Return the change of each of `MEASURES` on the test questions from the first evaluation to the last."""
    tests = [run["evaluations"]["test"] for run in runs]
    return [
        Case([test[-1][metric][k] - test[0][metric][k] for test in tests], 1, margin(_name(metric, k)))
        for metric, k in MEASURES
    ]


def _name(metric: str, k: str) -> str:
    return f"{metric.removesuffix('_at_k')}@{k}"


def _interval(mean: float, low: float, high: float) -> str:
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def spread(values: Sequence[float]) -> str:
    """Format the mean and, of several values, the standard deviation."""
    deviation = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{deviation}"
