"""Comparison of methods over seeds or tasks: paired differences from a baseline, and verdicts.

    python -m experiments.lab.comparison runs/none-* runs/ucb_con-*

Runs whose settings differ only in seed, model or data belong to one method. The method of the first run is the
baseline; every other method is compared with it, run by run, where model, data and seed are the same.
"""

import argparse
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from experiments.lab.verdicts import LEAST_UNITS, Case, judge, per_unit
from outcome_rl.terminal.tables import print_table
from outcome_rl.terminal.text import errors_on_one_line, printable
from outcome_rl.tools.compare import SEED, lacking_runs, measure, name_methods, print_comparison, spread
from outcome_rl.tools.runs import Run, read_run

# A task is a model with its data; runs that differ only in these and in the seed repeat one another.
TASK = ("model.path", "data.train_files", "data.val_files", "data.test_files")
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


def compare_methods(folders: Sequence[Path]) -> dict[str, Any]:
    """Compare the methods of runs, finished or not; the runs of one method differ only by seed, model or data.

    Returns:
        As `compare_runs`, and
        `baseline`: the method of the first run; `unit`: the unit of replication, "task" or "seed".
        `unpaired`: runs of other methods than the baseline without a baseline run of their task and seed.
        `verdicts`: rows with left, right, measure, mean difference, 95 % interval, adjusted p,
            number of units, verdict.

    Raises:
        ValueError: a folder holds no run, runs have equal settings and seeds, a run has no evaluation, or two methods
            were evaluated on different data.
    """
    read = [read_run(folder) for folder in folders]
    figures, data, step = measure(read, folders)
    runs = [
        Measured(str(folder), identity, found)
        for folder, identity, found in zip(folders, identify(read, folders), figures, strict=True)
    ]
    _check_same_evaluations(runs)
    methods: dict[str, list[Measured]] = {}
    for run in runs:
        methods.setdefault(run.identity.method, []).append(run)
    unit = "task" if len({run.identity.task for run in runs}) >= LEAST_UNITS else "seed"
    lacking = lacking_runs(figures, folders)
    measures = [name for name in figures[0] if name not in lacking]
    baseline, *others = methods
    paired = {run.identity.pair for run in methods[baseline]}
    return {
        "methods": {
            method: {
                "runs": [run.name for run in group],
                "figures": {name: spread([run.figures[name] for run in group]) for name in measures},
            }
            for method, group in methods.items()
        },
        "baseline": baseline,
        "unit": unit,
        "data": data,
        "step": step,
        "left_out": lacking,
        "unpaired": [run.name for name in others for run in methods[name] if run.identity.pair not in paired],
        "verdicts": _verdicts(methods, measures, unit),
    }


def identify(runs: Sequence[Run], folders: Sequence[Path]) -> list[Identity]:
    """Return method, task and seed of runs; a method is named by the settings in which it differs from the others.

    Raises:
        ValueError: runs have equal settings and seeds.
    """
    methods = name_methods(runs, folders, (*TASK, SEED))
    tasks = [
        tuple(str(run.config[section][name]) for section, name in (one.split(".") for one in TASK)) for run in runs
    ]
    seeds = [run.config["trainer"]["seed"] for run in runs]
    return [Identity(*one) for one in zip(methods, tasks, seeds, strict=True)]


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


def print_verdicts(comparison: Mapping[str, Any]) -> None:
    """Print the differences of each method from the baseline, and the runs without a partner."""
    numbers = {method: f"[{number}]" for number, method in enumerate(comparison["methods"], start=1)}
    for method, number in numbers.items():
        rows = [
            [row["measure"], f"{row['mean']:+.3f}", _interval(row), str(row["units"]), row["verdict"]]
            for row in comparison["verdicts"]
            if row["left"] == method and row["units"]
        ]
        if rows:
            against = f"{number} minus {numbers[comparison['baseline']]}"
            print_table([against, "mean", "95 % interval", f"{comparison['unit']}s", "verdict"], rows)
    if comparison["unpaired"]:
        names = ", ".join(comparison["unpaired"])
        print(printable(f"without a baseline run of their model, data and seed, so in no difference: {names}"))


def _interval(row: Mapping[str, Any]) -> str:
    return "{:+.3f} to {:+.3f}".format(*row["interval"]) if row["interval"] else ""


def main(argv: Sequence[str] | None = None) -> None:
    """Compare methods over runs: mean and spread, paired differences and verdicts; the first run is the baseline."""
    parser = argparse.ArgumentParser(prog="python -m experiments.lab.comparison", description=main.__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR", help="folder of a run")
    with errors_on_one_line():
        found = compare_methods(parser.parse_args(argv).runs)
        print_comparison(found)
        print_verdicts(found)


if __name__ == "__main__":
    main()
