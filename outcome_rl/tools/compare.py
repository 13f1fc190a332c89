"""Runs side by side: settings that differ, and the metrics of the last and of the best checkpoint.

Runs whose settings differ only by seed are one column, of means and standard deviations.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outcome_rl.grpo.config.load import leaves
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.run.evaluation import best_steps
from outcome_rl.terminal.tables import counted, print_table
from outcome_rl.terminal.text import printable
from outcome_rl.tools.runs import Run, read_run
from outcome_rl_kernels.settings import settings_of

SEED = "trainer.seed"
DATA = ("data.val_files", "data.test_files")
# These affect results, but not whether a run can resume.
MORE = ("model.path", "data.train_files", *DATA, SEED, "trainer.initial_exploration")


def compare_runs(folders: Sequence[Path]) -> dict[str, Any]:
    """Compare runs, finished or not; runs of one method differ only by seed.

    Returns:
        `methods`: method -> `runs`, and `figures`: measure -> mean, sd (None for one run) and n.
        `data`: "test" or "validation"; `step`: the last one that all runs have evaluated there.
        `left_out`: measure that not every run has -> the runs without it.

    Raises:
        ValueError: a folder holds no run, runs have equal settings and seeds or were evaluated on different data, or a
            run has no evaluation.
    """
    runs = [read_run(folder) for folder in folders]
    evaluated = [{name: run.config["data"][name.removeprefix("data.")] for name in DATA} for run in runs]
    for folder, found in zip(folders, evaluated, strict=True):
        if changed := [name for name in DATA if found[name] != evaluated[0][name]]:
            raise ValueError(
                f"runs are compared on the same data; {changed[0]} is {evaluated[0][changed[0]]} in {folders[0]} and "
                f"{found[changed[0]]} in {folder}: compare them apart"
            )
    figures, data, step = measure(runs, folders)
    methods: dict[str, list[int]] = {}
    for number, method in enumerate(name_methods(runs, folders, (SEED,))):
        methods.setdefault(method, []).append(number)
    lacking = lacking_runs(figures, folders)
    return {
        "methods": {
            method: {
                "runs": [str(folders[i]) for i in of_method],
                "figures": {
                    name: spread([figures[i][name] for i in of_method]) for name in figures[0] if name not in lacking
                },
            }
            for method, of_method in methods.items()
        },
        "data": data,
        "step": step,
        "left_out": lacking,
    }


def lacking_runs(figures: Sequence[Mapping[str, float]], folders: Sequence[Path]) -> dict[str, list[str]]:
    """Return the measures that not every run has, each with the runs without it."""
    measures = dict.fromkeys(name for one in figures for name in one)
    pairs = list(zip(figures, folders, strict=True))
    lacking = {name: [str(folder) for one, folder in pairs if name not in one] for name in measures}
    return {name: without for name, without in lacking.items() if without}


def name_methods(runs: Sequence[Run], folders: Sequence[Path], apart: Sequence[str]) -> list[str]:
    """Name the method of each run by the settings in which the runs differ, exploration settings first.

    Args:
        apart: settings that make no other method, such as the seed.

    Raises:
        ValueError: two runs have equal settings, these included.
    """
    flat = [dict(leaves(run.config)) for run in runs]
    names = [one.name for one in settings_of(TrainConfig()) if one.affects_results or one.name in MORE]
    varied = [name for name in names if len({json.dumps(settings.get(name)) for settings in flat}) > 1]
    known: dict[str, Path] = {}
    for folder, settings in zip(folders, flat, strict=True):
        key = json.dumps([settings.get(name) for name in varied])
        if key in known:
            raise ValueError(
                f"{known[key]} and {folder} have the same settings and seed, so they are one run: omit one"
            )
        known[key] = folder
    shown = [name for name in varied if name not in apart]
    shown.sort(key=lambda name: (name != "exploration.bonus", not name.startswith("exploration.")))
    return [
        ", ".join(f"{name.rpartition('.')[2]}={settings.get(name)}" for name in shown) or "all runs"
        for settings in flat
    ]


def measure(runs: Sequence[Run], folders: Sequence[Path]) -> tuple[list[dict[str, float]], str, int]:
    """Return the measures of runs at the last step that all have evaluated, with the kind of data and the step.

    These are test data if all runs have been tested, else validation data.
    """
    tested = all(any(row["step"] for row in run.watched("test")) for run in runs)
    data = "test" if tested else "validation"
    rows = [run.watched(data) for run in runs]
    steps = [{row["step"] for row in rows_of_run if row["step"]} for rows_of_run in rows]
    for folder, found in zip(folders, steps, strict=True):
        if not found:
            raise ValueError(
                f"{folder} has no evaluation after step 0, neither on test nor on validation data: train it on, or "
                "set data.test_files or trainer.test_freq"
            )
    common = set.intersection(*steps)
    if not common:
        last = ", ".join(f"{folder} at {max(found)}" for folder, found in zip(folders, steps, strict=True))
        raise ValueError(f"no step was evaluated by all runs; their last evaluations are at {last}")
    step = max(common)
    rows = [[row for row in rows_of_run if row["step"] <= step] for rows_of_run in rows]
    ks = set.intersection(*({*rows_of_run[-1]["pass_at_k"]} for rows_of_run in rows))
    largest = max(ks, key=int)
    return [_figures(run, found, largest) for run, found in zip(runs, rows, strict=True)], data, step


def _figures(run: Run, rows: Sequence[Mapping[str, Any]], largest: str) -> dict[str, float]:
    """Return measure -> value of the evaluations, with k up to `largest`; see docs/training.md for the measures."""
    last, step = rows[-1], rows[-1]["step"]
    by_step = {row["step"]: row for row in rows}
    validated = [row for row in run.watched("validation") if 0 < row["step"] <= step]
    best = best_steps(validated)
    # Otherwise some runs would have a test metric by chance, and the runs of a method no measure in common.
    tested = all(row["step"] in by_step for row in validated)
    figures = {}
    for k in dict.fromkeys(("1", largest)):
        figures[f"last pass@{k}"] = last["pass_at_k"][k]
        if f"pass@{k}" in best:
            at, value = best[f"pass@{k}"]
            name, value = ("best", by_step[at]["pass_at_k"][k]) if tested else ("best validation", value)
            figures[f"{name} pass@{k}"] = value
    figures[f"last diff@{largest}"] = last["diff_at_k"][largest]
    trained: dict[str, Any] = next((row for row in reversed(run.metrics) if row["step"] <= step), {})
    for name, metric in (("solved", "exploration/solved_fraction"), ("answers", "exploration/distinct_answers")):
        if metric in trained:
            figures[name] = trained[metric]
    return figures


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return mean, standard deviation (None for one run) and number of the runs of a method."""
    sd = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "sd": sd, "n": len(values)}


def print_comparison(comparison: Mapping[str, Any]) -> None:
    """Print the methods by number, their measures, and what is left out."""
    methods = comparison["methods"]
    print(f"on {comparison['data']} data after step {comparison['step']}, the last that all runs have evaluated\n")
    for number, (method, one) in enumerate(methods.items(), start=1):
        print(printable(f"[{number}] {method}: {counted(len(one['runs']), 'run')}"))
    print()
    measures = next(iter(methods.values()))["figures"]
    rows = [[name, *(_mean(one["figures"][name]) for one in methods.values())] for name in measures]
    print_table(["", *(f"[{number}]" for number in range(1, len(methods) + 1))], rows)
    for name, without in comparison["left_out"].items():
        print(printable(f"{name} is left out: not in {', '.join(without)}"))


def _mean(figure: Mapping[str, Any]) -> str:
    return f"{figure['mean']:.3f}" + ("" if figure["sd"] is None else f" ± {figure['sd']:.3f}")
