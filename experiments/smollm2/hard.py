"""The plan for SmolLM2 that can decide: few hard questions, many visits, five warm starts as units. Not yet run.

python -m experiments.smollm2.hard --prepare   # warm starts, hard questions, base samples: an hour and a half
python -m experiments.smollm2.hard             # the trainings; a second process shares them; then results/hard.json

Each warm start learns from demonstrations of its own, and has hard questions of its own: those that it fails 32 times.
Every training question is visited 40 times with 8 samples, and the warm-started policy draws as many. The same command
continues what was stopped. The dtype is fixed, so that runs from processors with and without bfloat16 belong together;
the result file names the processor.

`ROWS` are all comparisons that will be judged, with the effect that is predicted, the spread over warm starts that is
assumed, and where both come from. `power` is of that effect and spread. Five units are few: a row needs an effect of
about twice its spread, so only the large ones can be expected to be decided.
"""

import argparse
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.result_file import write_result
from experiments.paper.base import Samples
from experiments.smollm2.model import FOLDER, make_model
from experiments.smollm2.task import problems
from experiments.smollm2.warm_start import BATCH_SIZE, warm_start
from outcome_rl.analyze import classify_samples, read_samples
from outcome_rl.files import read_rows, write_rows
from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.schema import SamplingConfig, TrainConfig
from outcome_rl.grpo.run.run_lock import Interrupted, RunBusyError
from outcome_rl.grpo.trainer import train
from outcome_rl.outcomes.comparisons import Progress
from outcome_rl.outcomes.keys import NO_ANSWER
from outcome_rl.outcomes.matcher import OutcomeMatcher
from outcome_rl.terminal import errors_on_one_line
from outcome_rl.tools.hard_set import find_hard
from outcome_rl.tools.sample import open_sampler, sampling_config
from outcome_rl.tools.verdicts import Case, Verdict, judge, t_quantile

CONFIG = Path(__file__).parent / "config.yaml"
RESULTS, NAME = Path(__file__).parent / "results", "hard"
RUNS = Path("runs/smollm2-hard")
BASE, GRPO = "base", "none"
LEVEL = 0.05
METHODS = {
    GRPO: ["exploration.bonus=none"],
    "ucb_con": ["exploration.bonus=ucb_con", "exploration.coef=0.2"],
    "batch": ["exploration.bonus=batch", "exploration.coef=0.2"],
    "pkpo": ["exploration.bonus=none", "exploration.adv_estimator=pkpo(k=4)"],
    "pkpo+batch": ["exploration.bonus=batch", "exploration.coef=0.2", "exploration.adv_estimator=pkpo(k=4)"],
}


@dataclass(frozen=True)
class Plan:
    """Sizes of the study."""

    warm_starts: int = 5
    warm_steps: int = 20
    pool: int = 1024  # questions among which hard ones are looked for
    failed: int = 32  # samples that all fail on a hard question
    questions: int = 64  # hard ones, at most
    batch: int = 32
    n: int = 8
    steps: int = 80  # so every question is visited 40 times
    test_questions: int = 256
    test_samples: int = 64


PLAN = Plan()


class Row(NamedTuple):
    """One comparison of the study, with its prediction."""

    left: str
    right: str
    measure: str
    effect: float  # predicted, left minus right
    spread: float  # assumed standard deviation over warm starts
    why: str


HARD_TOY = "the toy language model on hard questions"
ROWS = (
    Row(GRPO, BASE, "solved", 0.15, 0.08, f"half of the effect in {HARD_TOY} (+.30), its spread (.07)"),
    Row(GRPO, BASE, "answers", -10.0, 4.0, "SmolLM2's earlier runs: from 10.5 answers in 32 samples to 2.7"),
    Row(GRPO, BASE, "pass@1", 0.15, 0.05, "less than half of the earlier runs' +.34 on questions as they are drawn"),
    Row(GRPO, BASE, "diff@64", -8.0, 2.0, "as for answers, on test questions"),
    Row("ucb_con", GRPO, "solved", 0.06, 0.07, f"half of the effect in {HARD_TOY} (+.12), its spread (.07)"),
    Row("batch", GRPO, "solved", 0.06, 0.07, f"half of the effect in {HARD_TOY} (+.12), its spread (.07)"),
    Row("pkpo", GRPO, "diff@64", 3.0, 1.5, "the table of docs/methods.md: +3.1 of diff@32, three rule tables"),
    Row("pkpo", GRPO, "pass@64", 0.08, 0.06, "half of the table of docs/methods.md: +.15 at pass@32"),
    Row("pkpo+batch", "pkpo", "solved", 0.03, 0.07, "the tabular model: a small gain"),
)
MARGINS = {"solved": 0.01, "answers": 0.25, "pass": 0.01, "diff": 0.25}  # of pass@k and diff@k for every k


def power(row: Row, units: int = PLAN.warm_starts, rows: Sequence[Row] = ROWS) -> float:
    """Return the chance that a row of a family is decided at Bonferroni's level, by 20,000 simulated studies."""
    rng = np.random.default_rng(0)
    drawn = rng.normal(row.effect, row.spread, (20_000, units))
    t = drawn.mean(axis=1) / (drawn.std(axis=1, ddof=1) / np.sqrt(units))
    return float((abs(t) > t_quantile(1 - LEVEL / len(rows), units - 1)).mean())


def settings(plan: Plan, folder: Path, unit: int, method: str, changes: Sequence[str]) -> TrainConfig:
    """Return the settings of a training, with the changes that its method and task need."""
    start = folder / f"warm-{unit}"
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
            *changes,
        ],
    )


def prepare(plan: Plan, folder: Path, unit: int, base: Path = FOLDER) -> None:
    """Make a warm start, its hard questions and its base samples, unless they are there.

    Raises:
        ValueError: the policy fails fewer questions than a batch holds.
    """
    start = folder / f"warm-{unit}"
    if not (start / "test.jsonl").exists():
        warm_start(base, start, plan.warm_steps, first=unit * plan.warm_steps * BATCH_SIZE)
        write_rows(start / "pool.jsonl", problems("train", plan.pool))
        write_rows(start / "test.jsonl", problems("test", plan.test_questions))
    if not (start / "train.jsonl").exists():
        config = _sampling(start, "pool", unit)
        with (
            open_sampler(config, [[str(start / "pool.jsonl")]], start / "hard", with_text=False) as (sampler, (pool,)),
            OutcomeMatcher() as matcher,
        ):
            _, hard = find_hard(sampler, matcher, pool, plan.failed, start / "hard", _show)
        kept = [row for row in read_rows(start / "pool.jsonl") if row["id"] in set(hard)][: plan.questions]
        kept = kept[: len(kept) // plan.batch * plan.batch]
        if not kept:
            raise ValueError(f"{start} fails only {len(hard)} of {plan.pool} questions; raise pool of the plan")
        write_rows(start / "train.jsonl", kept)
    samples = start / "base" / "samples.jsonl"
    questions = len(list(read_rows(start / "train.jsonl")))
    if len(list(read_rows(samples))) == questions:
        return
    count = plan.steps * plan.batch * plan.n // questions
    config = _sampling(start, "train", unit)
    with open_sampler(config, [[str(start / "train.jsonl")]], samples.parent, with_text=False) as (sampler, (asked,)):
        sampler.fill(samples, asked, SamplingConfig(n=count), "base policy", _ignore)


def train_all(
    plan: Plan, folder: Path, methods: Mapping[str, Sequence[str]] = METHODS, task: Sequence[str] = ()
) -> None:
    """Train every method from every warm start, one warm start after the other.

    Args:
        methods: settings of each method.
        task: settings of all of them.

    Raises:
        Interrupted: a signal came; the same call continues.
    """
    for unit in range(plan.warm_starts):
        for method, changes in methods.items():
            try:
                train(settings(plan, folder, unit, method, [*task, *changes]))
            except RunBusyError:
                print(f"{method}-{unit} is left to the process that trains it")


def figures(plan: Plan, folder: Path, methods: Iterable[str] = METHODS) -> dict[str, Any]:
    """Return the measures of every finished run, by method, one entry a warm start."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in (BASE, *methods)}
    for unit in range(plan.warm_starts):
        for method in methods:
            run = folder / f"{method}-{unit}"
            last = list(read_rows(run / "metrics.jsonl"))[-1]
            tests = [row for row in read_rows(run / "evaluations.jsonl") if row["dataset"].endswith("test")]
            found[method].append(
                {
                    "solved": last["exploration/solved_fraction"],
                    "answers": last["exploration/distinct_answers"],
                    **tested(plan, tests[-1]),
                }
            )
            if method == GRPO:
                samples = folder / f"warm-{unit}" / "base" / "samples.jsonl"
                found[BASE].append((_coverage(samples) if samples.exists() else {}) | tested(plan, tests[0]))
    return found


def judged(found: Mapping[str, Sequence[Mapping[str, float]]], rows: Sequence[Row] = ROWS) -> list[Verdict]:
    """Judge rows as one family; the direction of each is that of its prediction."""
    cases = []
    for row in rows:
        pairs = zip(found[row.left], found[row.right], strict=True)
        differences = [left[row.measure] - right[row.measure] for left, right in pairs]
        cases.append(Case(differences, 1 if row.effect > 0 else -1, MARGINS[row.measure.partition("@")[0]]))
    return judge(cases)


def tested(plan: Plan, row: Mapping[str, Any]) -> dict[str, float]:
    """Return the measures of an evaluation."""
    k = str(plan.test_samples)
    return {"pass@1": row["pass_at_k"]["1"], f"pass@{k}": row["pass_at_k"][k], f"diff@{k}": row["diff_at_k"][k]}


def _coverage(samples: Path) -> dict[str, float]:
    """Return the share of the questions that the base samples solve, and their answers a question."""
    with OutcomeMatcher() as matcher:
        outcomes, _ = classify_samples(matcher, read_samples(samples))
    every = [Samples(keys, correct) for keys, correct in outcomes]
    return {
        "solved": statistics.fmean(bool(one.correct.any()) for one in every),
        "answers": statistics.fmean(len({*one.keys.tolist()} - {NO_ANSWER}) for one in every),
    }


def _sampling(start: Path, name: str, unit: int) -> TrainConfig:
    overrides = ["model.dtype=float32", f"trainer.seed={unit}"]
    return sampling_config(str(start), [str(start / f"{name}.jsonl")], str(CONFIG), overrides)


@contextmanager
def _show(label: str, unit: str) -> Iterator[Progress]:
    print(f"hard questions: {label}", flush=True)
    yield _ignore


def _ignore(done: int, total: int) -> None:
    """Show no progress."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the plan, or a part of it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", action="store_true", help="stop before the trainings")
    options = parser.parse_args(argv)
    with errors_on_one_line():
        make_model()
        for unit in range(PLAN.warm_starts):
            prepare(PLAN, RUNS, unit)
        if options.prepare:
            return 0
        try:
            train_all(PLAN, RUNS)
        except Interrupted as interruption:
            return 128 + interruption.signum
        found = figures(PLAN, RUNS)
        print(f"wrote {write_result(RESULTS, NAME, {'plan': asdict(PLAN)}, found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
