"""The plan on Countdown: its rows, its power, and a run of everything in small where reasoning-gym is installed."""

from pathlib import Path

import pytest

from experiments.smollm2 import countdown, hard
from experiments.smollm2.countdown import METHODS, PLAN, ROWS, SETTINGS, Plan
from outcome_rl.files import read_rows


def test_the_plan_is_what_it_says() -> None:
    assert PLAN.steps * PLAN.batch / PLAN.questions == 20  # visits of a question
    assert {row.left for row in ROWS} | {hard.BASE} == {*METHODS, hard.BASE}
    assert {row.measure.partition("@")[0] for row in ROWS} <= {*hard.MARGINS}


def test_power_is_what_the_file_says() -> None:
    power = [hard.power(row, rows=ROWS) for row in ROWS]
    assert power == pytest.approx([0.5, 0.5, 0.5, 0.1, 0.1], abs=0.05)


@pytest.mark.slow
def test_the_whole_plan_in_small(base: Path, tmp_path: Path) -> None:
    pytest.importorskip("reasoning_gym", reason="Countdown comes from the package reasoning-gym")
    sizes = {"warm_starts": 1, "warm_steps": 2, "questions": 4, "batch": 2, "n": 4, "steps": 2}
    small = Plan(**sizes, test_questions=2, test_samples=4)
    found = countdown.prepare(small, tmp_path, 0, base)
    assert found == countdown.prepare(small, tmp_path, 0, base)  # makes nothing twice
    assert set(found) == {"pass@1", "pass@4", "diff@4"}
    data = [[row["problem"] for row in read_rows(tmp_path / "warm-0" / f"{name}.jsonl")] for name in ("train", "test")]
    assert [len(set(one)) for one in data] == [4, 2]
    assert not {*data[0]} & {*data[1]}
    hard.train_all(small, tmp_path, METHODS, SETTINGS)
    measured = hard.figures(small, tmp_path, METHODS)
    assert {method: len(runs) for method, runs in measured.items()} == dict.fromkeys((hard.BASE, *METHODS), 1)
    assert measured[hard.BASE] == [found]
