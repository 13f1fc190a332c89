"""A study on SmolLM2: from each warm start, the unit, every method is trained; each training has a result file.

Trainings may run on different machines. A warm start is made again where it is needed: it is in float32 and a function
of its number, so it is the same up to rounding, and every result file has the measures before training, the dtype and
the processor. The same call continues what was stopped, and repeats no training that has a result file; its
checkpoints, 1.6 GB, are removed.
"""

import argparse
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from bench.result_file import write_result
from experiments.judged import interval
from experiments.lab.comparison import margin
from experiments.lab.verdicts import LEVEL, Case, Verdict, judge, t_quantile
from experiments.paper.figures import COLOURS, draw_curve, finish_axes, save_small
from experiments.paper.tables import label, table
from experiments.smollm2.model import make_model
from experiments.smollm2.record import spread
from outcome_rl.files.jsonl import read_rows
from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.run.checkpoint import CHECKPOINTS
from outcome_rl.grpo.run.run_lock import Interrupted, RunBusyError
from outcome_rl.grpo.trainer import train
from outcome_rl.terminal.text import errors_on_one_line

CONFIG = Path(__file__).parent / "config.yaml"
RESULTS = Path(__file__).parent / "results"
BASE, GRPO = "base", "none"
LABELS = {BASE: "warm-started policy", "rare_correct": "rare_correct, alpha = 0.8"}
CURVES = {"solved": "exploration/solved_fraction", "answers": "exploration/distinct_answers"}

Measures = dict[str, float]
Unit = Mapping[str, Measures]  # method, or BASE -> measures


@dataclass(frozen=True)
class Plan:
    """Sizes of a study."""

    warm_starts: int
    warm_steps: int
    questions: int  # for training
    batch: int
    n: int
    steps: int
    test_questions: int
    test_samples: int


class Row(NamedTuple):
    """One comparison of a study, with its prediction."""

    left: str
    right: str
    measure: str
    effect: float  # predicted, left minus right
    spread: float  # assumed standard deviation over warm starts
    why: str


class Study(NamedTuple):
    """A plan, fixed before its first training."""

    name: str
    plan: Plan
    methods: Mapping[str, Sequence[str]]  # -> settings
    rows: Sequence[Row]  # all comparisons that will be judged, as one family
    task: Sequence[str] = ()  # settings of all methods
    taken: Mapping[str, str] = {}  # method -> the study that has trained it from the same warm starts

    @property
    def runs(self) -> Path:
        """Folder of warm starts and trainings."""
        return Path("runs") / f"smollm2-{self.name}"


def power(study: Study, row: Row) -> float:
    """Return the chance that a row is decided at Bonferroni's level, by 20,000 simulated studies."""
    units = study.plan.warm_starts
    drawn = np.random.default_rng(0).normal(row.effect, row.spread, (20_000, units))
    t = drawn.mean(axis=1) / (drawn.std(axis=1, ddof=1) / np.sqrt(units))
    return float((abs(t) > t_quantile(1 - LEVEL / len(study.rows), units - 1)).mean())


def settings(study: Study, folder: Path, unit: int, method: str) -> TrainConfig:
    """Return the settings of a training; `folder` holds the warm starts, and will hold the training."""
    plan, start = study.plan, folder / f"warm-{unit}"
    return load_config(
        CONFIG,
        [
            f"model.path={start}",
            "model.dtype=float32",
            f"data.train_files={start / 'train.jsonl'}",
            f"data.val_files={start / 'test.jsonl'}[:{plan.test_questions}]",
            f"data.test_files={start / 'test.jsonl'}[:{plan.test_questions}]",
            f"data.train_batch_size={plan.batch}",
            f"rollout.n={plan.n}",
            f"rollout.val_kwargs.n={plan.test_samples}",
            f"trainer.total_training_steps={plan.steps}",
            f"trainer.test_freq={plan.steps}",
            f"trainer.seed={unit}",
            f"trainer.default_local_dir={folder}",
            f"trainer.experiment_name={method}-{unit}",
            *study.task,
            *study.methods[method],
        ],
    )


def train_one(study: Study, folder: Path, unit: int, method: str) -> dict[str, Any]:
    """Train a method from a warm start; return its measures before and after, and its curves.

    Raises:
        Interrupted: a signal came; the same call continues.
        RunBusyError: another process trains it.
    """
    config = settings(study, folder, unit, method)
    train(config)
    metrics, evaluations = (list(read_rows(config.run_dir / f"{name}.jsonl")) for name in ("metrics", "evaluations"))
    before, after = (tested(study.plan, row) for row in evaluations if Path(row["dataset"]).name.startswith("test"))
    curves = {name: [row[key] for row in metrics] for name, key in CURVES.items()}
    return {"before": before, "after": {name: curve[-1] for name, curve in curves.items()} | after, "curves": curves}


def tested(plan: Plan, row: Mapping[str, Any]) -> Measures:
    """Return the measures of an evaluation."""
    k = str(plan.test_samples)
    return {"pass@1": row["pass_at_k"]["1"], f"pass@{k}": row["pass_at_k"][k], f"diff@{k}": row["diff_at_k"][k]}


def read_units(study: Study) -> list[Unit]:
    """Read the measures of every warm start whose trainings all have a result file; those before are GRPO's."""
    units: list[Unit] = []
    for unit in range(study.plan.warm_starts):
        paths = {method: result_file(study, unit, method) for method in study.methods}
        if all(path.exists() for path in paths.values()):
            found = {method: json.loads(path.read_text())["figures"] for method, path in paths.items()}
            before = found[GRPO].get("base", {}) | found[GRPO]["before"]
            units.append({BASE: before} | {method: one["after"] for method, one in found.items()})
    return units


def result_file(study: Study, unit: int, method: str) -> Path:
    return RESULTS / study.taken.get(method, study.name) / f"{method}-{unit}.json"


def differences(row: Row, units: Sequence[Unit]) -> list[float]:
    """Return left minus right, one entry a unit."""
    return [unit[row.left][row.measure] - unit[row.right][row.measure] for unit in units]


def judged(study: Study, units: Sequence[Unit]) -> list[Verdict]:
    """Judge the rows as one family; the direction of each is that of its prediction."""
    return judge(
        [Case(differences(row, units), 1 if row.effect > 0 else -1, margin(row.measure)) for row in study.rows]
    )


def rows_table(study: Study) -> str:
    """Return predicted and measured differences of the units that are done, in Markdown; verdicts need all of them."""
    units = read_units(study)
    whole = len(units) == study.plan.warm_starts
    words = [verdict.word for verdict in judged(study, units)] if whole else [""] * len(study.rows)
    lines = [
        [
            *(LABELS.get(name) or label(name) for name in (row.left, row.right)),
            row.measure,
            f"{row.effect:+g} ± {row.spread:g}",
            f"{power(study, row):.2f}",
            interval(differences(row, units)),
            word,
        ]
        for row, word in zip(study.rows, words, strict=True)
    ]
    heading = ["method", "against", "measure", "predicted", "power", "measured", "verdict"]
    state = (
        f"{len(units)} warm starts; intervals of 95 %, verdicts by Holm's method over {len(study.rows)} rows."
        if whole
        else f"**{_done(study)} of {len(study.methods) * study.plan.warm_starts} trainings are done**, which complete "
        f"{len(units)} of {study.plan.warm_starts} warm starts. Intervals of 95 % are of each row alone; verdicts come "
        "with the last."
    )
    return f"{table(heading, lines)}\n{state}\n"


def means_table(study: Study) -> str:
    """Return the means of all measures over the units that are done, in Markdown; empty before the first."""
    units = read_units(study)
    if not units:
        return ""
    measures = list(units[0][GRPO])
    lines = [
        [
            LABELS.get(name) or label(name),
            *(spread([u[name][m] for u in units]) if m in units[0][name] else "" for m in measures),
        ]
        for name in (BASE, *study.methods)
    ]
    note = "Mean and standard deviation over the warm starts that are done."
    if len(units) == study.plan.warm_starts:
        note = "Mean and standard deviation over the warm starts. Only the differences in the table above were judged."
    return f"\n{table(['', *measures], lines)}\n{note}\n"


def draw_training(study: Study, path: Path) -> None:
    """Draw the curves over the samples drawn, and the base samples at their end: means, and lowest to highest."""
    plan, units = study.plan, range(study.plan.warm_starts)
    per_step = plan.batch * plan.n // plan.questions
    records = {
        method: [json.loads(result_file(study, unit, method).read_text())["figures"] for unit in units]
        for method in study.methods
    }
    figure = Figure(figsize=(9.5, 3.6), layout="constrained")
    titles = {"solved": "Training questions solved so far", "answers": "Different answers to a question so far"}
    for axes, (name, title) in zip(figure.subplots(1, len(titles)), titles.items(), strict=True):
        for method, found in records.items():
            curves = [one["curves"][name] for one in found]
            samples = range(per_step, per_step * plan.steps + 1, per_step)
            draw_curve(axes, samples, curves, LABELS.get(method) or label(method), COLOURS[method], "-")
        ends = [[one["base"][name]] for one in records[GRPO]]
        draw_curve(axes, [per_step * plan.steps], ends, LABELS[BASE], COLOURS[BASE], "o")
        finish_axes(axes, title, "samples per question", legend=name == "solved")
    axes.set_yscale("log")
    save_small(figure, path, dpi=100)


def _done(study: Study) -> int:
    return sum(
        result_file(study, unit, name).exists() for unit in range(study.plan.warm_starts) for name in study.methods
    )


def run(
    study: Study, prepare: Callable[[Path, int], Measures], text: str | None, argv: Sequence[str] | None = None
) -> int:
    """Run the trainings of a study that have no result file yet; return the exit status.

    Args:
        prepare: makes a warm start and its data in a folder, unless they are there; returns what its samples of the
            training questions solve, where there are some.
        text: of `--help`.
        argv: arguments of the command line.
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = range(study.plan.warm_starts)
    parser.add_argument("--units", type=int, nargs="+", choices=every, default=every, metavar="N", help="default: all")
    options = parser.parse_args(argv)
    with errors_on_one_line():
        make_model()
        for unit, method in product(options.units, study.methods):
            path = result_file(study, unit, method)
            if path.exists():  # looked for now, because other processes train as well
                continue
            base = prepare(study.runs, unit)
            try:
                found = train_one(study, study.runs, unit, method) | ({"base": base} if base else {})
            except RunBusyError:
                print(f"{method}-{unit} is left to the process that trains it")
                continue
            except Interrupted as interruption:
                return 128 + interruption.signum
            config = {"plan": asdict(study.plan), "unit": unit, "method": method}
            print(f"wrote {write_result(path.parent, path.stem, config, found)}", flush=True)
            shutil.rmtree(settings(study, study.runs, unit, method).run_dir / CHECKPOINTS)
    return 0
