"""The plan on hard questions: its rows, its power, and a run of everything in small."""

from pathlib import Path

import pytest

from experiments.smollm2 import hard
from experiments.smollm2.hard import METHODS, PLAN, ROWS, Plan
from outcome_rl.files import read_rows


def test_the_plan_is_what_it_says() -> None:
    assert PLAN.steps * PLAN.batch / PLAN.questions >= 40  # visits of a question
    assert (PLAN.warm_starts, PLAN.test_questions, PLAN.test_samples) == (5, 256, 64)
    assert {row.left for row in ROWS} | {hard.BASE} == {*METHODS, hard.BASE}
    assert {row.measure.partition("@")[0] for row in ROWS} == {*hard.MARGINS}


def test_power_is_high_for_large_effects_and_the_level_for_none() -> None:
    row = ROWS[0]
    assert hard.power(row._replace(effect=0.0)) == pytest.approx(hard.LEVEL / len(ROWS), abs=0.003)
    assert hard.power(row._replace(effect=10 * row.spread)) > 0.99
    assert sum(hard.power(row) > 0.5 for row in ROWS) >= 3


def test_the_whole_plan_in_small(base: Path, tmp_path: Path) -> None:
    methods = {name: METHODS[name] for name in ("none", "pkpo+batch")}
    small = Plan(
        warm_starts=2,
        warm_steps=2,
        pool=6,
        failed=8,
        questions=4,
        batch=2,
        n=4,
        steps=2,
        test_questions=2,
        test_samples=4,
    )
    for unit in range(2):
        hard.prepare(small, tmp_path, unit, base)
        hard.prepare(small, tmp_path, unit, base)  # makes nothing twice
    hard.train_all(small, tmp_path, methods)
    found = hard.figures(small, tmp_path, methods)
    assert {method: len(runs) for method, runs in found.items()} == {"base": 2, "none": 2, "pkpo+batch": 2}
    assert set(found["base"][0]) == {"solved", "answers", "pass@1", "pass@4", "diff@4"}
    rows = list(read_rows(tmp_path / "warm-0" / "base" / "samples.jsonl"))
    assert len(rows) == 4
    first, second = ((tmp_path / f"warm-{unit}" / "model.safetensors").read_bytes() for unit in (0, 1))
    assert first != second  # demonstrations of their own
