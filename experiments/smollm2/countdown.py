"""The plan for a task that nobody here wrote: Countdown of reasoning-gym, where many answers are correct.

python -m experiments.smollm2.countdown --prepare   # warm starts, and what they solve: results/countdown-warm.json
python -m experiments.smollm2.countdown             # the trainings, if that is enough; then results/countdown.json

"Make 24 of 3, 5 and 9, each used once": the outcome is the expression up to the order of sums and products, so a group
may hold several correct outcomes, and exploration has something to find among them. Five warm starts are the units, as
in `hard`. SmolLM2 has never seen the task: if the warm-started policies have a pass@1 below .1 on average, there is
nothing to learn from, the trainings do not begin, and the figures of `--prepare` are the result.
They reached it (results/countdown-warm.json); nothing is trained yet.

`ROWS` are all comparisons that will be judged, one family. No run on Countdown helped to predict them: there is none.
Five units decide effects of about twice their spread: the first three rows have a power of one half, the last two of
one tenth, and are there because nobody has measured them.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from bench.result_file import write_result
from experiments.smollm2 import hard
from experiments.smollm2.hard import BASE, CONFIG, GRPO, RESULTS, Row, train_all
from experiments.smollm2.model import FOLDER, make_model
from experiments.smollm2.warm_start import BATCH_SIZE, warm_start
from outcome_rl.files import write_rows
from outcome_rl.grpo.run.evaluation import evaluate
from outcome_rl.grpo.run.run_lock import Interrupted
from outcome_rl.grpo.types import Problem
from outcome_rl.terminal import errors_on_one_line
from outcome_rl.tools.sample import open_sampler, sampling_config

NAME, RUNS = "countdown", Path("runs/smollm2-countdown")
ENOUGH = 0.1  # mean pass@1 of the warm starts below which nothing is trained
TASK = "countdown?min_numbers=3&max_numbers=3&min_value=1&max_value=20&min_target=10&max_target=60"
SEEDS = {"warm": 1, "train": 1_000_001, "test": 2_000_001}  # reasoning-gym draws row i from seed + i
SETTINGS = (
    "exploration.outcome=outcome_rl.reasoning_gym:outcome",
    "exploration.is_correct=outcome_rl.reasoning_gym:is_correct",
    "data.max_prompt_length=256",
    "data.max_response_length=32",
)
METHODS = {name: hard.METHODS[name] for name in (GRPO, "batch", "pkpo")} | {
    "rare_correct": ["exploration.bonus=none", "exploration.adv_estimator=rare_correct(alpha=0.8)"]
}


@dataclass(frozen=True)
class Plan(hard.Plan):
    """Sizes of the study: those of `hard`, in small."""

    warm_steps: int = 60
    questions: int = 64  # as they are drawn: `pool` and `failed` are not used
    batch: int = 16
    steps: int = 80  # so every question is visited 20 times
    test_questions: int = 128
    test_samples: int = 32


PLAN = Plan()
ROWS = (
    Row(GRPO, BASE, "pass@1", 0.10, 0.05, "a third of the effect on sums, +.34: the task is harder"),
    Row(GRPO, BASE, "diff@32", -6.0, 3.0, "somewhat less than on sums, -7.8"),
    Row("pkpo", GRPO, "diff@32", 3.0, 1.5, "the toy language model, +3.1"),
    Row("batch", GRPO, "answers", 1.0, 1.0, "the toy language model on medium questions, +.7"),
    Row("rare_correct", GRPO, "answers", 1.0, 1.0, "rarer correct expressions weigh more; a guess"),
)


def problems(split: str, count: int) -> list[dict[str, Any]]:
    """Return the first problems of a split that no earlier split has, as rows of a data file."""
    from outcome_rl.reasoning_gym import rows  # not above: the plan can be read without the package

    def split_rows(name: str, size: int) -> list[dict[str, Any]]:
        return rows(f"{TASK}&seed={SEEDS[name]}&size={size}")

    earlier = list(SEEDS)[: list(SEEDS).index(split)]
    seen = {row["problem"] for name in earlier for row in split_rows(name, 8192)}
    return list(islice((row for row in split_rows(split, 2 * count) if row["problem"] not in seen), count))


def prepare(plan: Plan, folder: Path, unit: int, base: Path = FOLDER) -> dict[str, float]:
    """Make a warm start and its data, unless they are there; return what it solves of the test questions."""
    start = folder / f"warm-{unit}"
    if not (start / "test.jsonl").exists():
        size = plan.warm_steps * BATCH_SIZE
        shown = problems("warm", plan.warm_starts * size)[unit * size : (unit + 1) * size]
        asked = [Problem(row["id"], row["problem"], row["answer"]) for row in shown]
        source = [(problem, rf"\boxed{{{problem.answer}}}") for problem in asked]
        warm_start(base, start, plan.warm_steps, source=source)
        write_rows(start / "train.jsonl", problems("train", plan.questions))
        write_rows(start / "test.jsonl", problems("test", plan.test_questions))
    overrides = [*SETTINGS, "model.dtype=float32", f"trainer.seed={unit}"]
    overrides += [f"data.val_max_samples={plan.test_questions}", f"rollout.val_kwargs.n={plan.test_samples}"]
    config = sampling_config(str(start), [str(start / "test.jsonl")], str(CONFIG), overrides)
    with (
        open_sampler(config, [[str(start / "test.jsonl")]], start / "measured", with_text=True) as (sampler, (test,)),
        config.exploration.matcher() as matcher,
    ):
        sampling, longest = config.rollout.val_kwargs, config.data.max_response_length
        return hard.tested(plan, evaluate(sampler.engine, matcher, test, sampling, longest, unit))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the plan, or a part of it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prepare", action="store_true", help="stop before the trainings")
    options = parser.parse_args(argv)
    with errors_on_one_line():
        make_model()
        warm = [prepare(PLAN, RUNS, unit) for unit in range(PLAN.warm_starts)]
        pass_at_1 = statistics.fmean(one["pass@1"] for one in warm)
        print(f"wrote {write_result(RESULTS, f'{NAME}-warm', {'plan': asdict(PLAN)}, {BASE: warm})}")
        print(f"mean pass@1 of the warm starts: {pass_at_1:.3f}; the trainings need {ENOUGH}")
        if options.prepare or pass_at_1 < ENOUGH:
            return 0
        try:
            train_all(PLAN, RUNS, METHODS, SETTINGS)
        except Interrupted as interruption:
            return 128 + interruption.signum
        found = hard.figures(PLAN, RUNS, METHODS)
        print(f"wrote {write_result(RESULTS, NAME, {'plan': asdict(PLAN)}, found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
