"""The estimator as rllm calls it; what matters of rllm, which is not on PyPI, is copied here (commit 9beb6e0)."""

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from outcome_rl import Explorer

REGISTRY: dict[str, Any] = {}


@pytest.fixture(scope="module")
def example() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("rllm", "rllm.trainer", "rllm.trainer.algorithms", "rllm.trainer.algorithms.advantage"):
            patch.setitem(sys.modules, name, module := ModuleType(name))
        module.register_rllm_adv_estimator = lambda name: lambda function: REGISTRY.update({name: function})
        return importlib.import_module("rllm_estimator")


def group(question: str, gold: str, answers: str, task: Any = None) -> Any:
    """A workflow's step may hold only the output of the model, and the last step be a tool call alone."""
    task = {"id": question, "ground_truth": gold} if task is None else task
    said = [SimpleNamespace(model_response=rf"\boxed{{{answer}}}") for answer in answers]
    said[0] = SimpleNamespace(model_response="", model_output=SimpleNamespace(content=said[0].model_response))
    silent = SimpleNamespace(model_response="", model_output=None)
    trajectories = [
        SimpleNamespace(task=task, steps=[silent, step, silent], reward=float(answer == gold))
        for step, answer in zip(said, answers, strict=True)
    ]
    return SimpleNamespace(trajectories=trajectories, group_id=f"{question}:solver", task_id=question)


def call(estimator: Any, groups: list[Any], *, divide: bool = True) -> Any:
    rewards = [np.array([trajectory.reward for trajectory in one.trajectories]) for one in groups]
    config = SimpleNamespace(norm_adv_by_std_in_grpo=divide)
    return estimator(rewards=rewards, algorithm_config=config, traj_groups=groups)


@pytest.mark.parametrize("divide", [True, False])
def test_every_trajectory_gets_the_explorers_advantage(example: Any, divide: bool) -> None:
    assert REGISTRY["other"] is example.estimator
    settings: dict[str, Any] = {"adv_estimator": "grpo", "bonus": "ucb_con", "coef": 0.2}
    estimator, same = example.OutcomeEstimator(**settings), Explorer(**settings)
    for _ in range(2):  # the second batch meets the counts of the first
        task = SimpleNamespace(metadata={"id": "q2"})
        found, returns = call(estimator, [group("q1", "4", "455"), group("q2", "7", "17", task)], divide=divide)
        scored = same.score(
            ["q1:solver"] * 3 + ["q2:solver"] * 2,
            [rf"\boxed{{{answer}}}" for answer in "45517"],
            ["4"] * 3 + ["7"] * 2,
            scale="std" if divide else "none",
        )
        assert [len(row) for row in found] == [3, 2]
        assert np.concatenate(found).tolist() == pytest.approx((scored.advantages + scored.bonuses).tolist())
        assert returns is found
        assert estimator.metrics.items() >= scored.metrics.items()
    assert estimator.explorer.seen("q1:solver") == same.seen("q1:solver")


DRAWN = "8f14e45f-ceea-467f-a8f3-7e1c1b9d1f2a"


@pytest.mark.parametrize(
    ("of_group", "row"), [("math:1", {"id": "math:1"}), ("1", {"id": 0}), ("3", {"question": "2+2"}), (DRAWN, {})]
)
def test_an_id_that_rllm_changes_or_draws_is_refused(example: Any, of_group: str, row: dict[str, Any]) -> None:
    one = group(of_group, "4", "45", SimpleNamespace(metadata=row))
    one.task_id = of_group.partition(":")[0]
    with pytest.raises(ValueError, match="every row must have a column id"):
        call(example.OutcomeEstimator(), [one])
