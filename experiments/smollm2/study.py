"""A study on SmolLM2 in units: each warm start has its trainings, and one result file when all of them are done.

A unit needs nothing of another, so units may be trained on different machines: the dtype is float32 everywhere, and a
result file names its processor. The same call continues what was stopped, and skips units that have a result file.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.result_file import write_result
from experiments.judged import interval
from experiments.paper.tables import label, table
from experiments.smollm2.model import make_model
from outcome_rl.files import read_rows
from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.run.run_lock import Interrupted
from outcome_rl.grpo.trainer import train
from outcome_rl.terminal import errors_on_one_line
from outcome_rl.tools.verdicts import Case, Verdict, judge, t_quantile

CONFIG = Path(__file__).parent / "config.yaml"
RESULTS = Path(__file__).parent / "results"
BASE, GRPO = "base", "none"
LABELS = {BASE: "warm-started policy", "rare_correct": "rare_correct, alpha = 0.8"}
LEVEL = 0.05
CURVES = {"solved": "exploration/solved_fraction", "answers": "exploration/distinct_answers"}
MARGINS = {"solved": 0.01, "answers": 0.25, "pass": 0.01, "diff": 0.25}  # of pass@k and diff@k for every k

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
            f"data.val_files={start / 'test.jsonl'}",
            f"data.test_files={start / 'test.jsonl'}",
            f"data.val_max_samples={plan.test_questions}",
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


def train_unit(study: Study, folder: Path, unit: int, base: Measures) -> dict[str, Any]:
    """Train all methods from a warm start; return the measures and curves of each, and the measures before.

    Args:
        base: measures of samples of the warm-started policy on the training questions, where the study has them.

    Raises:
        Interrupted: a signal came; the same call continues.
    """
    found: dict[str, Any] = {}
    for method in study.methods:
        config = settings(study, folder, unit, method)
        train(config)
        metrics, evaluations = (
            list(read_rows(config.run_dir / f"{name}.jsonl")) for name in ("metrics", "evaluations")
        )
        before, after = (tested(study.plan, row) for row in evaluations if Path(row["dataset"]).name.startswith("test"))
        curves = {name: [row[key] for row in metrics] for name, key in CURVES.items()}
        found.setdefault(BASE, base | before)
        found[method] = {name: curve[-1] for name, curve in curves.items()} | after | {"curves": curves}
    return found


def tested(plan: Plan, row: Mapping[str, Any]) -> Measures:
    """Return the measures of an evaluation."""
    k = str(plan.test_samples)
    return {"pass@1": row["pass_at_k"]["1"], f"pass@{k}": row["pass_at_k"][k], f"diff@{k}": row["diff_at_k"][k]}


def read_units(study: Study) -> list[Unit]:
    """Read the result files of the units that are done."""
    return [json.loads(path.read_text())["figures"] for path in sorted((RESULTS / study.name).glob("*.json"))]


def differences(row: Row, units: Sequence[Unit]) -> list[float]:
    """Return left minus right, one entry a unit."""
    return [unit[row.left][row.measure] - unit[row.right][row.measure] for unit in units]


def judged(study: Study, units: Sequence[Unit]) -> list[Verdict]:
    """Judge the rows as one family; the direction of each is that of its prediction."""
    return judge(
        [
            Case(differences(row, units), 1 if row.effect > 0 else -1, MARGINS[row.measure.partition("@")[0]])
            for row in study.rows
        ]
    )


def rows_table(study: Study, units: Sequence[Unit]) -> str:
    """Return predicted and measured differences in Markdown; verdicts come with the last unit."""
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
        else f"**{len(units)} of {study.plan.warm_starts} warm starts are done.** Verdicts come with the last."
    )
    return f"{table(heading, lines)}\n{state}\n"


def run(
    study: Study,
    prepare: Callable[[Path, int], Measures],
    text: str | None,
    argv: Sequence[str] | None = None,
) -> int:
    """Run units of a study that have no result file yet; return the exit status.

    Args:
        prepare: makes a warm start and its data in a folder, unless they are there; returns what its samples of the
            training questions solve, where there are some.
        text: of `--help`.
        argv: arguments of the command line.
    """
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = range(study.plan.warm_starts)
    parser.add_argument("--units", type=int, nargs="+", choices=every, default=every, metavar="N", help="default: all")
    parser.add_argument("--prepare", action="store_true", help="stop before the trainings")
    options = parser.parse_args(argv)
    with errors_on_one_line():
        make_model()
        for unit in _open(RESULTS / study.name, options.units):
            base = prepare(study.runs, unit)
            if options.prepare:
                continue
            try:
                found = train_unit(study, study.runs, unit, base)
            except Interrupted as interruption:
                return 128 + interruption.signum
            config = {"plan": asdict(study.plan), "unit": unit}
            print(f"wrote {write_result(RESULTS / study.name, str(unit), config, found)}", flush=True)
    return 0


def _open(folder: Path, units: Sequence[int]) -> Iterator[int]:
    for unit in units:
        if (folder / f"{unit}.json").exists():
            print(f"warm start {unit} has its result file", file=sys.stderr)
        else:
            yield unit
