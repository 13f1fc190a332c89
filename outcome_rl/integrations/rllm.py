"""Exploration in rllm: an estimator for `register_rllm_adv_estimator`.

    from rllm.trainer.algorithms.advantage import register_rllm_adv_estimator
    from outcome_rl.integrations.rllm import OutcomeEstimator

    register_rllm_adv_estimator("other")(OutcomeEstimator(bonus="batch", coef=0.2))

    rllm.algorithm.adv_estimator=other

rllm reads every name that it does not know as "other". It gives all tokens of a trajectory one advantage, so answer
tokens cannot be masked.
"""

from collections.abc import Mapping, Sequence
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

    The outcome is read from the last step of a trajectory that says something. A question is rllm's group id, the id of
    the task and the role of the trajectory. A positive reward is a correct response. An outcome function gets the row
    of the task.

    Args:
        **settings: fields of `ExplorationConfig` except `answer_mask_mode`.

    Attributes:
        explorer: the `Explorer`. To keep the counts, call its `save(folder)`; to continue, replace it by
            `Explorer.load(folder)`.
        metrics: of the last call.

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
            ValueError: the row of a task has no id, or one that rllm did not keep: questions would be mixed up.
        """
        trajectories = [(group, trajectory) for group in traj_groups for trajectory in group.trajectories]
        batch = Batch(
            [_question_id(group) for group, _ in trajectories],
            [_response(trajectory) for _, trajectory in trajectories],
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
    for trajectory in group.trajectories:
        row = _row(trajectory)
        ids = [str(row[name]) for name in ("id", "task_id") if row.get(name) is not None]
        if group.task_id not in ids and (row or _is_drawn(group.task_id)):
            raise ValueError(
                "every row must have a column id, and rllm must keep it: an id of 0 or '' it replaces by the row's "
                "position, what follows a colon it cuts off, and asynchronously it draws ids; got the ids "
                f"{ids} in a row and {group.task_id!r} in its group, and the row has the columns {sorted(row)}"
            )
    return str(group.group_id)


def _is_drawn(task_id: str) -> bool:
    try:
        return UUID(task_id).version == 4
    except ValueError:
        return False


def _response(trajectory: "Trajectory") -> str:
    """Return the text of the last step that has one: a step may be a tool call alone.

    Steps that a workflow makes itself, as rllm's `SimpleWorkflow` does, often have only the output of the model.
    """
    texts = (step.model_response or getattr(step.model_output, "content", None) for step in reversed(trajectory.steps))
    return next((text for text in texts if text), "")


def _row(trajectory: "Trajectory") -> Mapping[str, Any]:
    """Return the row of a trajectory's task, which is the row itself or an object with it."""
    row = trajectory.task if isinstance(trajectory.task, Mapping) else getattr(trajectory.task, "metadata", None)
    return row or {}
