"""The estimator as rllm calls it: with rllm itself where it is installed, otherwise with its contract, copied here."""

import uuid
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from outcome_rl import Explorer
from outcome_rl.integrations.rllm import OutcomeEstimator

try:
    from rllm.trainer.algorithms.advantage import (
        collect_reward_and_advantage_from_trajectory_groups as collect,
    )
    from rllm.trainer.algorithms.advantage import register_rllm_adv_estimator
    from rllm.trainer.algorithms.config import AlgorithmConfig, rLLMAdvantageEstimator
    from rllm.types import Step, Task, Trajectory, TrajectoryGroup
except ImportError:  # rllm is not on PyPI; read at commit 9beb6e0: rllm/types.py, rllm/trainer/algorithms/advantage.py

    def rLLMAdvantageEstimator(name: str) -> str:
        return name if name in ("grpo", "reinforce", "rloo") else "other"

    @dataclass
    class Step:
        model_response: str = ""
        model_output: Any = None
        advantage: Any = None

    @dataclass
    class Task:
        id: str
        instruction: str
        metadata: dict[str, Any] = field(default_factory=dict)

    @dataclass
    class Trajectory:
        task: Any
        steps: list[Step]
        reward: float

    @dataclass
    class TrajectoryGroup:
        trajectories: list[Trajectory]
        group_id: str

        @property
        def task_id(self) -> str:
            return self.group_id.split(":")[0]

    REGISTRY: dict[str, Any] = {}

    def register_rllm_adv_estimator(name: str) -> Any:
        return lambda function: REGISTRY.update({name: function})

    def AlgorithmConfig(estimator: str, norm_adv_by_std_in_grpo: bool = True) -> Any:
        return SimpleNamespace(estimator=estimator, norm_adv_by_std_in_grpo=norm_adv_by_std_in_grpo)

    def collect(groups: list[TrajectoryGroup], algorithm_config: Any) -> dict[str, float]:
        rewards = [np.array([trajectory.reward for trajectory in group.trajectories]) for group in groups]
        estimate = REGISTRY[algorithm_config.estimator]
        advantages, _ = estimate(rewards=rewards, algorithm_config=algorithm_config, traj_groups=groups)
        for group, row in zip(groups, advantages, strict=True):
            for trajectory, advantage in zip(group.trajectories, row, strict=True):
                for step in trajectory.steps:
                    step.advantage = float(advantage)
        return {}


def group(question: str, gold: str, answers: list[str], task: Any = None) -> Any:
    task = {"id": question, "ground_truth": gold} if task is None else task
    trajectories = [
        Trajectory(
            task=task,
            steps=[Step(model_response="let me see"), Step(model_response=rf"\boxed{{{answer}}}")],
            reward=float(answer == gold),
        )
        for answer in answers
    ]
    return TrajectoryGroup(trajectories=trajectories, group_id=f"{question}:solver")


def advantages(groups: list[Any]) -> list[float]:
    rows = [trajectory.steps for one in groups for trajectory in one.trajectories]
    assert all(first.advantage == last.advantage for first, last in rows)
    return [steps[0].advantage for steps in rows]


@pytest.mark.parametrize("divide", [True, False])
def test_every_step_gets_the_explorers_advantage(divide: bool) -> None:
    estimator, same = OutcomeEstimator(bonus="ucb_con", coef=0.2), Explorer(bonus="ucb_con", coef=0.2)
    register_rllm_adv_estimator("other")(estimator)
    config = AlgorithmConfig(estimator=rLLMAdvantageEstimator("outcome"), norm_adv_by_std_in_grpo=divide)
    for _ in range(2):  # the second batch meets the counts of the first
        groups = [group("q1", "4", ["4", "5", "5"]), group("q2", "7", ["1", "7"], Task("q2", "3+4", {"id": "q2"}))]
        collect(groups, config)
        scored = same.score(
            ["q1:solver"] * 3 + ["q2:solver"] * 2,
            [rf"\boxed{{{answer}}}" for answer in ("4", "5", "5", "1", "7")],
            ["4"] * 3 + ["7"] * 2,
            scale="std" if divide else "none",
        )
        assert advantages(groups) == pytest.approx((scored.advantages + scored.bonuses).tolist())
        assert estimator.metrics["outcomes/correct_rate"] == 0.4
    assert estimator.explorer.seen("q1:solver") == same.seen("q1:solver")


def test_an_id_that_rllm_drew_is_refused() -> None:
    drawn = str(uuid.uuid4())
    estimator = OutcomeEstimator()
    config = AlgorithmConfig(estimator="other")
    for task in ({"question": "2+2"}, Task(drawn, "2+2", {"question": "2+2"})):
        one = group(drawn, "4", ["4", "5"], task)
        with pytest.raises(ValueError, match=r"every row must have a column id.*has the columns \['question'\]"):
            estimator([np.array([1.0, 0.0])], config, traj_groups=[one])
    assert len(estimator.explorer.counts) == 0
    estimator([np.array([1.0, 0.0])], config, traj_groups=[group(drawn, "4", ["4", "5"])])  # of the data itself


@pytest.mark.parametrize(("of_row", "of_group"), [("math:1", "math:1"), (0, "1"), (None, "3")])
def test_an_id_that_rllm_changes_is_refused(of_row: Any, of_group: str) -> None:
    """It cuts ids at a colon, and takes the position of a row whose id is 0 or missing."""
    one = group(of_group, "4", ["4", "5"], {"id": of_row, "question": "2+2"})
    with pytest.raises(ValueError, match="every row must have a column id, and rllm must keep it"):
        OutcomeEstimator()([np.array([1.0, 0.0])], AlgorithmConfig(estimator="other"), traj_groups=[one])


def test_the_answer_is_in_the_last_step_that_says_something() -> None:
    estimator, one = OutcomeEstimator(), group("q", "4", ["4", "5"])
    for trajectory in one.trajectories:
        trajectory.steps.append(Step(model_response=""))  # a tool call alone
    estimator([np.array([1.0, 0.0])], AlgorithmConfig(estimator="other"), traj_groups=[one])
    assert dict(estimator.explorer.seen("q:solver")) == {"4": 1, "5": 1}


def test_a_workflows_steps_have_the_models_output_alone() -> None:
    estimator, one = OutcomeEstimator(), group("q", "4", ["4", "5"])
    for trajectory in one.trajectories:
        for step in trajectory.steps:
            step.model_response, step.model_output = "", SimpleNamespace(content=step.model_response)
    estimator([np.array([1.0, 0.0])], AlgorithmConfig(estimator="other"), traj_groups=[one])
    assert dict(estimator.explorer.seen("q:solver")) == {"4": 1, "5": 1}


def test_a_mask_is_refused() -> None:
    with pytest.raises(ValueError, match="answer_mask_mode cannot be set for rllm"):
        OutcomeEstimator(answer_mask_mode="policy")
