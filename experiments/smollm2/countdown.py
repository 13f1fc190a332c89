"""The plan for a task that nobody here wrote: Countdown of reasoning-gym, where many answers are correct.

python -m experiments.smollm2.countdown            # warm starts and trainings: fourteen hours of one core
python -m experiments.smollm2.countdown --units 0  # one warm start, on another machine, say

"Make 24 of 3, 5 and 9, each used once": the outcome is the expression up to the order of sums and products, so a group
may hold several correct outcomes, and exploration has something to find among them. Five warm starts are the units, as
in `hard`. SmolLM2 has never seen the task: were the pass@1 of the warm-started policies below .1 on average, nothing
could be learned, and nothing would be trained. Five that were made to see this reach .151
(results/countdown-warm.json).

`ROWS` are all comparisons that will be judged, one family. No run on Countdown helped to predict them: there is none.
Five units decide effects of about twice their spread: the first three rows have a power of one half, the last two of
one tenth, and are there because nobody has measured them.
"""

import sys
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from experiments.smollm2 import hard, study
from experiments.smollm2.model import FOLDER
from experiments.smollm2.study import BASE, GRPO, Measures, Row, Study, run
from experiments.smollm2.warm_start import BATCH_SIZE, warm_start
from outcome_rl.files.jsonl import write_rows
from outcome_rl.grpo.types import Problem
from outcome_rl.user_functions import load_function

TASKS = "examples/outcomes/gym_tasks.py"  # from the top of the checkout
TASK = "countdown?min_numbers=3&max_numbers=3&min_value=1&max_value=20&min_target=10&max_target=60"
SEEDS = {"warm": 1, "train": 1_000_001, "test": 2_000_001}  # reasoning-gym draws row i from seed + i
SETTINGS = (
    f"exploration.outcome={TASKS}:GymTask",
    "data.max_prompt_length=256",
    "data.max_response_length=32",
)
METHODS = {name: hard.METHODS[name] for name in (GRPO, "batch", "pkpo")} | {
    "rare_correct": ["exploration.bonus=none", "exploration.adv_estimator=rare_correct(alpha=0.8)"]
}


@dataclass(frozen=True)
class Plan(study.Plan):
    """Sizes of this study: those of `hard`, in small."""

    warm_starts: int = 5
    warm_steps: int = 60
    questions: int = 64  # as they are drawn, not hard ones
    batch: int = 16
    n: int = 8
    steps: int = 80  # so every question is visited 20 times
    test_questions: int = 128
    test_samples: int = 32


ROWS = (
    Row(GRPO, BASE, "pass@1", 0.10, 0.05, "a third of the effect on sums, +.34: the task is harder"),
    Row(GRPO, BASE, "diff@32", -6.0, 3.0, "somewhat less than on sums, -7.8"),
    Row("pkpo", GRPO, "diff@32", 3.0, 1.5, "the toy language model, +3.1"),
    Row("batch", GRPO, "answers", 1.0, 1.0, "the toy language model on medium questions, +.7"),
    Row("rare_correct", GRPO, "answers", 1.0, 1.0, "rarer correct expressions weigh more; a guess"),
)
PLAN = Plan()
STUDY = Study("countdown", PLAN, METHODS, ROWS, SETTINGS)


def problems(split: str, count: int) -> list[dict[str, Any]]:
    """Return the first problems of a split that no earlier split has, as rows of a data file."""
    rows = load_function(f"{Path(__file__).parents[2] / TASKS}:rows")

    def split_rows(name: str, size: int) -> list[dict[str, Any]]:
        return [*rows(f"{TASK}&seed={SEEDS[name]}&size={size}")]

    earlier = list(SEEDS)[: list(SEEDS).index(split)]
    seen = {row["problem"] for name in earlier for row in split_rows(name, 8192)}
    return list(islice((row for row in split_rows(split, 2 * count) if row["problem"] not in seen), count))


def prepare(plan: Plan, folder: Path, unit: int, base: Path = FOLDER) -> Measures:
    """Make a warm start and its data, unless they are there; the study draws no base samples."""
    start = folder / f"warm-{unit}"
    if not (start / "test.jsonl").exists():
        size = plan.warm_steps * BATCH_SIZE
        shown = problems("warm", plan.warm_starts * size)[unit * size : (unit + 1) * size]
        asked = [Problem(row["id"], row["problem"], row["answer"]) for row in shown]
        source = [(problem, rf"\boxed{{{problem.answer}}}") for problem in asked]
        warm_start(base, start, plan.warm_steps, source=source, dtype="float32")
        write_rows(start / "train.jsonl", problems("train", plan.questions))
        write_rows(start / "test.jsonl", problems("test", plan.test_questions))
    return {}


if __name__ == "__main__":
    sys.exit(run(STUDY, partial(prepare, PLAN), __doc__))
