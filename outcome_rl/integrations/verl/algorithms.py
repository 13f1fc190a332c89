"""The advantage estimator `outcome_grpo` and the policy loss `outcome`, with verl's signatures."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from outcome_rl.integrations.verl import ADV_ESTIMATOR
from outcome_rl_kernels.advantages.reference import Scale
from outcome_rl_kernels.loss.settings import LossSettings
from outcome_rl_kernels.loss.token_losses import clipped_surrogate, is_clipped

LOG_RATIO_CLAMP = 20.0  # verl's


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


def outcome_policy_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the clipped surrogate with dual clip, equal to verl's `vanilla`, and the share of tokens it moves.

    Per token `-min(r A, clip(r, 1 - clip_ratio_low, 1 + clip_ratio_high) A)`, at most `-clip_ratio_c A` where A < 0.

    Args:
        old_log_prob, log_prob: (B, T) log-probabilities of the sampled tokens; `log_prob` gets the gradient.
        advantages: (B, T), bonuses included.
        response_mask: (B, T), nonzero on the tokens of the loss.
        loss_agg_mode: as for verl's `agg_loss`, which aggregates the tokens.
        config: verl's `ActorConfig`.
        rollout_is_weights: (B, T) importance weights, which multiply the loss of each token, or None.

    Returns:
        The loss, and verl's metrics with `actor/pg_tokens`: the share of tokens with a policy gradient. Groups of equal
        rewards and masked answers have none. The metrics have no gradient.
    """
    from verl.trainer.ppo.core_algos import agg_loss
    from verl.utils.torch_functional import masked_mean

    low, high = (
        config.clip_ratio if bound is None else bound for bound in (config.clip_ratio_low, config.clip_ratio_high)
    )
    dual_clip = config.get("clip_ratio_c", 3.0)
    settings = LossSettings(epsilon_low=low, epsilon_high=high, delta=dual_clip)
    log_ratio_BT = (log_prob - old_log_prob).clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)
    ratio_BT = log_ratio_BT.exp()
    losses_BT = clipped_surrogate(ratio_BT, advantages, settings)
    if rollout_is_weights is not None:
        losses_BT = losses_BT * rollout_is_weights
    loss = agg_loss(
        loss_mat=losses_BT, loss_mask=response_mask, loss_agg_mode=loss_agg_mode, **config.global_batch_info
    )
    with torch.no_grad():
        clipped_BT = is_clipped(ratio_BT, advantages, LossSettings(epsilon_low=low, epsilon_high=high))
        dual_clipped_BT = (advantages < 0) & (ratio_BT > dual_clip)
        metrics = {
            "actor/pg_clipfrac": masked_mean(clipped_BT.float(), response_mask),
            "actor/pg_clipfrac_lower": masked_mean(dual_clipped_BT.float(), response_mask),
            "actor/ppo_kl": masked_mean(-log_ratio_BT, response_mask),
            "actor/pg_tokens": masked_mean((advantages != 0).float(), response_mask),
        }
    return loss, metrics
