"""The plan on Countdown: its power, and a run of everything in small where reasoning-gym is installed."""

from pathlib import Path

import pytest

from experiments.smollm2 import countdown, study
from experiments.smollm2.countdown import METHODS, ROWS, STUDY, Plan
from outcome_rl.files.jsonl import read_rows


def test_power_is_what_the_file_says() -> None:
    assert [study.power(STUDY, row) for row in ROWS] == pytest.approx([0.5, 0.5, 0.5, 0.1, 0.1], abs=0.05)


@pytest.mark.slow
def test_the_whole_plan_in_small(base: Path, tmp_path: Path) -> None:
    pytest.importorskip("reasoning_gym", reason="Countdown comes from the package reasoning-gym")
    sizes = {"warm_starts": 1, "warm_steps": 2, "questions": 4, "batch": 2, "n": 4, "steps": 2}
    letters = "data.max_prompt_length=512"  # a token each in this model
    small = STUDY._replace(plan=Plan(**sizes, test_questions=2, test_samples=4), task=(*STUDY.task, letters))
    assert countdown.prepare(small.plan, tmp_path, 0, base) == {}
    made = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("warm-0/*")}
    assert made
    countdown.prepare(small.plan, tmp_path, 0, base)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("warm-0/*")} == made  # nothing is made twice
    data = [[row["problem"] for row in read_rows(tmp_path / "warm-0" / f"{name}.jsonl")] for name in ("train", "test")]
    assert [len(set(one)) for one in data] == [4, 2]
    assert not {*data[0]} & {*data[1]}
    found = {method: study.train_one(small, tmp_path, 0, method) for method in METHODS}
    (before,) = {tuple(one["before"].items()) for one in found.values()}
    assert dict(before).keys() == {"pass@1", "pass@4", "diff@4"}
    assert found["none"] == study.train_one(small, tmp_path, 0, "none")  # trains nothing twice
