"""The advantage estimator `outcome_grpo`, with verl's signature."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor

from outcome_rl.integrations.verl import ADV_ESTIMATOR
from outcome_rl_kernels.advantages.groups import Scale

# (token_level_rewards, response_mask, scale) -> advantages, by the trainer's hook: it knows questions and responses,
# which verl does not pass on.
BatchAdvantages = Callable[[Tensor, Tensor, Scale], Tensor]
_current: ContextVar[BatchAdvantages] = ContextVar("outcome_rl_verl_batch")


@contextmanager
def batch_in_hand(advantages: BatchAdvantages) -> Iterator[None]:
    """Make `outcome_grpo` take its advantages from `advantages` while a batch is being estimated."""
    token = _current.set(advantages)
    try:
        yield
    finally:
        _current.reset(token)


def outcome_grpo(
    token_level_rewards: Tensor, response_mask: Tensor, config: Any = None, **kwargs: Any
) -> tuple[Tensor, Tensor]:
    """Return GRPO's advantages plus exploration bonuses, as `outcome_rl.group_advantages` computes them.

    Args:
        token_level_rewards: (R, T) float; their sum over tokens is the reward of a response.
        response_mask: (R, T), nonzero on tokens that the policy sampled.
        config: verl's `algorithm` section; `norm_adv_by_std_in_grpo=False` leaves out the division.
        **kwargs: other arguments that verl passes, such as `index`, which is new at every fetch.

    Returns:
        `(advantages, returns)`, the same (R, T) twice; 0 where the mask is 0, and on answer tokens as
        `answer_mask_mode` says.

    Raises:
        RuntimeError: no hook of a trainer supplies questions and responses.
    """
    batch = _current.get(None)
    if batch is None:
        raise RuntimeError(
            f"algorithm.adv_estimator={ADV_ESTIMATOR} needs the questions and responses of the batch, which only "
            "verl's V1 trainers give it; set trainer.use_v1=true"
        )
    by_std = True if config is None else config.get("norm_adv_by_std_in_grpo", True)
    advantages_RT = batch(token_level_rewards, response_mask, "std" if by_std else "none")
    return advantages_RT, advantages_RT
