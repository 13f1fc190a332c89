"""The plan that decides the default: its rows, its power, and GRPO's figures taken from Countdown's study."""

import json
from pathlib import Path

import pytest

from experiments.smollm2 import countdown, study
from experiments.smollm2.default import DEFAULT, ROWS, STUDY
from experiments.smollm2.study import GRPO, result_file, settings
from outcome_rl import ExplorationConfig


def test_it_trains_the_default_as_countdown_trained_grpo(tmp_path: Path) -> None:
    pytest.importorskip("reasoning_gym", reason="Countdown comes from the package reasoning-gym")
    config = settings(STUDY, tmp_path, 0, DEFAULT)
    assert config.exploration.method == ExplorationConfig().method
    for method in (GRPO, DEFAULT):
        ours, theirs = settings(STUDY, tmp_path, 0, method), settings(countdown.STUDY, tmp_path, 0, GRPO)
        assert (ours.data, ours.actor, ours.rollout) == (theirs.data, theirs.actor, theirs.rollout)
    assert settings(STUDY, tmp_path, 0, GRPO) == settings(countdown.STUDY, tmp_path, 0, GRPO)


def test_grpo_is_not_trained_again() -> None:
    assert all(result_file(STUDY, unit, GRPO).exists() for unit in range(STUDY.plan.warm_starts))
    assert {(row.left, row.right) for row in ROWS} == {(DEFAULT, GRPO)}


def test_both_methods_begin_with_the_same_policy() -> None:
    """A warm start is made again where it is needed, up to the rounding of the processor."""
    for unit in range(STUDY.plan.warm_starts):
        path = result_file(STUDY, unit, DEFAULT)
        if path.exists():
            ours, theirs = (json.loads(one.read_text())["figures"] for one in (path, result_file(STUDY, unit, GRPO)))
            assert ours["before"]["pass@1"] == pytest.approx(theirs["before"]["pass@1"], abs=0.01)


def test_power_is_what_the_file_says() -> None:
    assert [study.power(STUDY, row) for row in ROWS] == pytest.approx([0.06, 0.28, 0.68], abs=0.02)
    assert study.power(STUDY, ROWS[0]._replace(effect=-0.1)) == pytest.approx(0.9, abs=0.05)
