"""Exploration in rllm: an estimator for `register_rllm_adv_estimator`.

    from rllm.trainer.algorithms.advantage import register_rllm_adv_estimator
    from outcome_rl.integrations.rllm import OutcomeEstimator

    register_rllm_adv_estimator("other")(OutcomeEstimator(bonus="batch", coef=0.2))

    rllm.algorithm.adv_estimator=other

rllm reads every name that it does not know as "other". It gives all tokens of a trajectory one advantage, so answer
tokens cannot be masked.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from outcome_rl.integrations.adapter import explorer_without_mask, score
from outcome_rl.outcomes.batch import Batch
from outcome_rl_kernels.advantages.groups import Scale

if TYPE_CHECKING:
    from rllm.trainer.algorithms import AlgorithmConfig
    from rllm.types import Trajectory, TrajectoryGroup

Arrays = list[NDArray[Any]]


class OutcomeEstimator:
    """GRPO's advantages plus exploration bonuses, one per trajectory, as rllm's estimators return them.

    The outcome is read from the last step of a trajectory. A question is rllm's group id, the id of the task and the
    role of the trajectory. A positive reward is a correct response. An outcome function gets the row of the task.

    Args:
        **settings: fields of `ExplorationConfig` except `answer_mask_mode`.

    Attributes:
        explorer: the `Explorer`. To keep the counts, call its `save(folder)`; to continue, replace it by
            `Explorer.load(folder)`.
        metrics: those of the last call.

    Raises:
        TypeError, ValueError: a setting is unknown, of the wrong type or out of range.
    """

    def __init__(self, **settings: Any) -> None:
        self.explorer = explorer_without_mask("rllm", **settings)
        self.metrics: dict[str, float] = {}

    def __call__(
        self,
        rewards: Sequence[NDArray[Any]],
        algorithm_config: "AlgorithmConfig",
        *,
        traj_groups: "Sequence[TrajectoryGroup]",
        **_: Any,
    ) -> tuple[Arrays, Arrays]:
        """Return advantages and returns, which are equal, of every group, and count the outcomes.

        Raises:
            ValueError: the row of a task has no id, so that rllm drew a new one.
        """
        trajectories = [(group, trajectory) for group in traj_groups for trajectory in group.trajectories]
        batch = Batch(
            [_question_id(group) for group, _ in trajectories],
            [trajectory.steps[-1].model_response for _, trajectory in trajectories],
            rewards=np.concatenate(rewards).tolist(),
            rows=[_row(trajectory) for _, trajectory in trajectories],
        )
        scale: Scale = "std" if algorithm_config.norm_adv_by_std_in_grpo else "none"
        scored = score(self.explorer, batch, id_source="rllm's group ids", scale=scale)
        self.metrics = scored.metrics
        ends = np.cumsum([len(row) for row in rewards])[:-1]
        advantages: Arrays = np.split((scored.advantages + scored.bonuses).numpy(), ends)
        return advantages, advantages


def _question_id(group: "TrajectoryGroup") -> str:
    row, drawn = _row(group.trajectories[0]), None
    with suppress(ValueError):
        drawn = UUID(group.task_id).version == 4
    if drawn and group.task_id not in (str(row.get("id")), str(row.get("task_id"))):
        raise ValueError(
            f"every task must have a stable id; rllm drew {group.task_id} for one whose row has the columns "
            f"{sorted(row)}. Add a column id to the data set"
        )
    return str(group.group_id)


def _row(trajectory: "Trajectory") -> Mapping[str, Any]:
    """Return the row of a trajectory's task, which is the row itself or an object with it."""
    row = trajectory.task if isinstance(trajectory.task, Mapping) else getattr(trajectory.task, "metadata", None)
    return row or {}
