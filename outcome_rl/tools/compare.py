"""Comparison of methods over runs: mean and spread over seeds, and paired differences.

Runs whose settings differ only in seed, model or data belong to one method. The method of the first run is the
baseline; every other method is compared with it, run by run, where model, data and seed are the same.
"""

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from outcome_rl.grpo.config.load import default_values, leaves
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.run.evaluation import best_steps
from outcome_rl.settings import settings_of
from outcome_rl.terminal.tables import counted, print_table
from outcome_rl.terminal.text import printable
from outcome_rl.tools.runs import Run, read_run
from outcome_rl.tools.verdicts import LEAST_UNITS, Case, judge, per_unit

# A task is a model with its data; runs that differ only in these and in the seed repeat one another.
TASK = ("model.path", "data.train_files", "data.val_files", "data.test_files")
SEED = "trainer.seed"
# It affects results, but not whether a run can resume: the counts are in the checkpoint.
START = "trainer.initial_exploration"
# The smallest difference of interest: a point of a rate, a quarter of an answer.
RATE_MARGIN, ANSWERS_MARGIN = 0.01, 0.25
WORDS = {"seen": "higher", "opposite": "lower", "no difference": "no difference", "undecided": "undecided"}


class Identity(NamedTuple):
    """Method, task and seed of a run."""

    method: str
    task: tuple[str, ...]
    seed: int

    @property
    def pair(self) -> tuple[tuple[str, ...], int]:
        """Task and seed, which two runs share whose difference is taken."""
        return self.task, self.seed


class Measured(NamedTuple):
    """A run and its metrics."""

    name: str
    identity: Identity
    figures: dict[str, float]


def compare_runs(folders: Sequence[Path]) -> dict[str, Any]:
    """Compare the methods of runs, finished or not; the runs of one method differ only by seed, model or data.

    Returns:
        `methods`: method -> `runs`, and `figures`: measure -> mean, sd (None for one run) and n.
        `baseline`: the method of the first run; `unit`: the unit of replication, "task" or "seed".
        `data`: "test" or "validation"; `step`: the last one that all runs have evaluated there.
        `left_out`: measure that not every run has -> the runs without it; `unpaired`: runs of other methods than the
            baseline without a baseline run of their task and seed.
        `verdicts`: rows with left, right, measure, mean difference, 95 % interval, adjusted p,
            number of units, verdict.

    Raises:
        ValueError: a folder holds no run, runs have equal settings and seeds, or a run has no evaluation.
    """
    runs, data, step = _measure([read_run(folder) for folder in folders], folders)
    methods: dict[str, list[Measured]] = {}
    for run in runs:
        methods.setdefault(run.identity.method, []).append(run)
    unit = "task" if len({run.identity.task for run in runs}) >= LEAST_UNITS else "seed"
    lacking = {name: [run.name for run in runs if name not in run.figures] for run in runs for name in run.figures}
    measures = [name for name, without in lacking.items() if not without]
    baseline, *others = methods
    paired = {run.identity.pair for run in methods[baseline]}
    return {
        "methods": {
            method: {
                "runs": [run.name for run in group],
                "figures": {name: _spread([run.figures[name] for run in group]) for name in measures},
            }
            for method, group in methods.items()
        },
        "baseline": baseline,
        "unit": unit,
        "data": data,
        "step": step,
        "left_out": {name: without for name, without in lacking.items() if without},
        "unpaired": [run.name for name in others for run in methods[name] if run.identity.pair not in paired],
        "verdicts": _verdicts(methods, measures, unit),
    }


def _measure(runs: Sequence[Run], folders: Sequence[Path]) -> tuple[list[Measured], str, int]:
    """Measure runs at the last step that all have evaluated, on test data if all have, else on validation data."""
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
    if not ks:
        raise ValueError(f"the evaluations of the runs after step {step} have no k of pass@k in common")
    measured = [
        Measured(str(folder), identity, _figures(run, rows_of_run, max(ks, key=int)))
        for run, rows_of_run, folder, identity in zip(runs, rows, folders, identify(runs, folders), strict=True)
    ]
    _check_same_evaluations(measured)
    return measured, data, step


def identify(runs: Sequence[Run], folders: Sequence[Path]) -> list[Identity]:
    """Return method, task and seed of runs; a method is named by the settings in which it differs from the others.

    Raises:
        ValueError: runs have equal settings and seeds.
    """
    flat = [default_values() | dict(leaves(run.config)) for run in runs]
    labels = _labels(flat, [name for name in _varied(flat) if name not in (*TASK, SEED)])
    known: dict[Identity, Path] = {}
    for folder, settings, label in zip(folders, flat, labels, strict=True):
        identity = Identity(label, tuple(str(settings.get(name)) for name in TASK), settings[SEED])
        if identity in known:
            raise ValueError(
                f"{known[identity]} and {folder} have the same settings and seed, so they are one run: omit one"
            )
        known[identity] = folder
    return list(known)


def _check_same_evaluations(runs: Sequence[Measured]) -> None:
    """Raise ValueError if two methods were evaluated on different data."""
    evaluated: dict[str, set[tuple[str, ...]]] = {}
    for run in runs:
        evaluated.setdefault(run.identity.method, set()).add(run.identity.task[2:])
    baseline, *others = evaluated
    for method in others:
        if evaluated[method] != evaluated[baseline]:
            raise ValueError(
                "methods are compared on the same data.val_files and data.test_files; "
                f"{baseline} has {_listed(evaluated[baseline])}, {method} has {_listed(evaluated[method])}"
            )


def _listed(data: Iterable[tuple[str, ...]]) -> str:
    return ", ".join(" and ".join(sources) for sources in sorted(data))


def _labels(runs: Sequence[Mapping[str, Any]], varied: Sequence[str]) -> list[str]:
    """Name the method of each run by every setting in which the methods differ, exploration settings first."""
    shown = sorted(varied, key=lambda name: (name != "exploration.bonus", not name.startswith("exploration.")))
    return [
        ", ".join(f"{name.rpartition('.')[2]}={settings.get(name)}" for name in shown) or "all runs"
        for settings in runs
    ]


def _varied(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the settings that affect results and differ among the runs."""
    names = [one.name for one in settings_of(TrainConfig()) if one.affects_results or one.name in (*TASK, START)]
    return [name for name in names if len({json.dumps(settings.get(name)) for settings in runs}) > 1]


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


def _verdicts(methods: Mapping[str, Sequence[Measured]], measures: Sequence[str], unit: str) -> list[dict[str, Any]]:
    baseline, *others = methods
    base = {run.identity.pair: run.figures for run in methods[baseline]}

    def differences(left: str, measure: str) -> Iterable[tuple[Any, float]]:
        paired = [run for run in methods[left] if run.identity.pair in base]
        # Two tasks are no sample of tasks: their mean is compared, over the seeds that both have.
        tasks, runs_of_seed = len({run.identity.task for run in paired}), Counter(run.identity.seed for run in paired)
        for run in paired:
            _, task, seed = run.identity
            if unit == "task" or runs_of_seed[seed] == tasks:
                difference = run.figures[measure] - base[run.identity.pair][measure]
                yield task if unit == "task" else seed, difference

    rows = list(product(others, measures))
    cases = [Case(per_unit(differences(left, name)), 1, margin(name)) for left, name in rows]
    return [
        {
            "left": left,
            "right": baseline,
            "measure": measure,
            "mean": verdict.mean if verdict.units else None,
            "interval": None if math.isnan(verdict.low) else [verdict.low, verdict.high],
            "p": verdict.p,
            "units": verdict.units,
            "verdict": WORDS[verdict.word],
        }
        for (left, measure), verdict in zip(rows, judge(cases), strict=True)
    ]


def margin(measure: str) -> float:
    """Return the smallest difference of interest of a measure."""
    return ANSWERS_MARGIN if "diff" in measure or measure == "answers" else RATE_MARGIN


def _spread(values: Sequence[float]) -> dict[str, Any]:
    sd = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "sd": sd, "n": len(values)}


def print_comparison(comparison: Mapping[str, Any]) -> None:
    """Print the methods by number, their measures, the differences of each from the baseline, and what is left out."""
    methods = comparison["methods"]
    numbers = {method: f"[{number}]" for number, method in enumerate(methods, start=1)}
    print(f"on {comparison['data']} data after step {comparison['step']}, the last that all runs have evaluated\n")
    for method, number in numbers.items():
        print(printable(f"{number} {method}: {counted(len(methods[method]['runs']), 'run')}"))
    print()
    measures = [
        [name, *(_mean(one["figures"][name]) for one in methods.values())]
        for name in methods[comparison["baseline"]]["figures"]
    ]
    print_table(["", *numbers.values()], measures)
    for method, number in numbers.items():
        rows = [
            [row["measure"], f"{row['mean']:+.3f}", _interval(row), str(row["units"]), row["verdict"]]
            for row in comparison["verdicts"]
            if row["left"] == method and row["units"]
        ]
        if rows:
            against = f"{number} minus {numbers[comparison['baseline']]}"
            print_table([against, "mean", "95 % interval", f"{comparison['unit']}s", "verdict"], rows)
    for name, without in comparison["left_out"].items():
        print(printable(f"{name} is left out: not in {', '.join(without)}"))
    if comparison["unpaired"]:
        names = ", ".join(comparison["unpaired"])
        print(printable(f"without a baseline run of their model, data and seed, so in no difference: {names}"))


def _mean(figure: Mapping[str, Any]) -> str:
    return f"{figure['mean']:.3f}" + ("" if figure["sd"] is None else f" ± {figure['sd']:.3f}")


def _interval(row: Mapping[str, Any]) -> str:
    return "{:+.3f} to {:+.3f}".format(*row["interval"]) if row["interval"] else ""
