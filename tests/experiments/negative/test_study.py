"""The study of rewards below 0: what its runs share, what a row counts, and that the page's answer is the record's."""

import json
import math
from pathlib import Path

import pytest

from experiments.negative import rewards
from experiments.negative.study import RECORD, ROWS, SEEDS, rows_table, runs, settings


def test_runs_differ_by_estimator_reward_and_seed() -> None:
    every = [settings(run, Path("runs")) for run in runs(SEEDS)]
    common = set.intersection(*map(set, every))
    others = {text.partition("=")[0] for one in every for text in one if text not in common}
    names = {"exploration.adv_estimator", "reward.function", "trainer.seed", "trainer.experiment_name"}
    assert others == names
    assert len({tuple(one) for one in every}) == len(every) == 19


@pytest.mark.parametrize(("answer", "expected"), [("40", (1, 1, 0.76)), ("4", (0, -1, -0.24))])
def test_rewards_are_those_of_the_plan(answer: str, expected: tuple[float, ...]) -> None:
    row, response = {"answer": answer}, r"23 2+ 1 = 47 2- 1 = 40 \boxed{ 40 }"
    found = [of(response, row) for of in (rewards.plain, rewards.signed, rewards.shorter)]
    assert found == pytest.approx(expected)


def test_a_row_is_judged_over_the_seeds_that_have_both_arms() -> None:
    figures = json.loads(RECORD.read_text())["figures"]
    table = [line.split(" | ") for line in rows_table().splitlines()[2:]]
    for row, cells in zip(ROWS, table, strict=True):
        pairs = [(figures[row.left][seed], figures[row.right][seed]) for seed in figures[row.left]]
        mean = math.fsum(left[row.measure] - right[row.measure] for left, right in pairs) / len(pairs)
        assert float(cells[4].split()[0]) == pytest.approx(mean, abs=6e-4)
        assert int(cells[5]) == len(pairs)
    assert not any("seen" in cells[6] for cells in table)
    assert "lower" not in [cells[6] for cells in table if "grpo" in cells[0]]  # the rule: the shift stays
