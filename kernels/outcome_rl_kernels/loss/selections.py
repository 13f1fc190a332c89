"""Token losses that restrict another token loss to some tokens of a call, or weigh its tokens."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from outcome_rl_kernels.loss.losses import token_loss_of
from outcome_rl_kernels.loss.ratios import mean_by_sequence
from outcome_rl_kernels.loss.rollout_weights import rollout_weights
from outcome_rl_kernels.loss.types import LossInputs, TokenLoss, TokenLossFunction


def top_entropy(loss: str | TokenLoss | TokenLossFunction, share: float) -> TokenLoss:
    """Apply a token loss only to the tokens of highest entropy (arXiv:2506.01939; TRL's `top_entropy_quantile`).

    Args:
        loss: the token loss.
        share: in (0, 1], the share of the active tokens of a call.

    Raises:
        ValueError: the share is outside its range.
    """
    inner = token_loss_of(loss)
    if not 0 < share <= 1:
        raise ValueError(f"share must lie in (0, 1]; got {share}")

    def selected(logps: Tensor, entropies: Tensor, inputs: LossInputs) -> Tensor:
        if len(entropies) == 0:  # no tokens, so no quantile
            return inner(logps, entropies, inputs)
        levels = entropies.detach().float()  # as TRL: tokens that differ by the rounding of float64 are equal
        if inputs.active is not None:
            levels = levels.where(inputs.active, torch.nan)
        low = levels < levels.nanquantile(1 - share)
        return inner(logps, entropies, inputs).masked_fill(low, 0.0)

    return replace(inner, function=selected, needs_sequences=True, scales_with_advantage=False)


def near_policy(loss: str | TokenLoss | TokenLossFunction, threshold: float) -> TokenLoss:
    """Drop negative-advantage tokens of sequences that have drifted off-policy (arXiv:2512.02556).

    A token with A < 0 is dropped if the mean of `mu - lp` over its sequence is above the threshold; mu are
    `rollout_logps`, without them `old_logps`. TRL calls it `off_policy_mask_threshold`.

    Args:
        loss: the token loss.
        threshold: maximum of the mean, in nats per token. A token whose mu is NaN counts as 0.

    Raises:
        ValueError: the threshold is NaN.
    """
    inner = token_loss_of(loss)
    if math.isnan(threshold):
        raise ValueError("threshold must be a number; got NaN")

    def kept(logps: Tensor, entropies: Tensor, inputs: LossInputs) -> Tensor:
        losses = inner(logps, entropies, inputs)
        sampler = inputs.old_logps if inputs.rollout_logps is None else inputs.rollout_logps
        distances = torch.zeros_like(logps) if sampler is None else (sampler - logps.detach()).nan_to_num(nan=0.0)
        left = mean_by_sequence(distances, inputs) > threshold
        return losses.masked_fill(left & (inputs.advantages < 0), 0.0)

    return replace(inner, function=kept, needs_sequences=True)


def engine_corrected(loss: str | TokenLoss | TokenLossFunction, high: float) -> TokenLoss:
    """Multiply the tokens of another loss by truncated importance weights between policy and engine.

    The weights are `rollout_weights(lp, rollout_logps, high=high)`, where lp are `old_logps`, or on-policy the
    log-probabilities of the call itself: computed beforehand, they would cost one more product with the head. A call
    without `rollout_logps` has no weights.

    Args:
        loss: the token loss.
        high: maximum of a weight.
    """
    inner = token_loss_of(loss)

    def corrected(logps: Tensor, entropies: Tensor, inputs: LossInputs) -> Tensor:
        if inputs.rollout_logps is None:
            return inner(logps, entropies, inputs)
        policy = logps.detach() if inputs.old_logps is None else inputs.old_logps
        weights = rollout_weights(policy, inputs.rollout_logps, high=high)
        if inner.weighs_rollouts:
            return inner(logps, entropies, inputs._replace(rollout_weights=weights))
        return inner(logps, entropies, inputs) * weights

    return replace(inner, function=corrected, weighs_rollouts=True)
