"""Importance weights between the policy that learns and the engine that sampled, for the losses' `rollout_weights`.

Both hold the same weights, but their arithmetic differs, so tokens are samples of a slightly different policy. With lp
the policy's log-probability of a sampled token and mu the engine's:

    w = exp(lp - mu)                               of a token
    w = exp(sum over the sequence of lp - mu)      of a sequence

A token whose mu is NaN is not corrected: its lp - mu is 0. The exponent is within +-20, as in verl.

| outside="truncate"               | outside="mask"                             |
|----------------------------------|--------------------------------------------|
| clip(w, low, high): TIS          | w within [low, high], else 0: MIS, IcePop  |

Sources: truncation, Ionides 2008 (doi:10.1198/106186008X320456) and Yao et al. 2025
(openreview.net/forum?id=8MHqvb4lK9); masks, IcePop (arXiv:2510.18855), and TRL's `vllm_importance_sampling_mode`.
"""

from typing import Literal

import torch
from torch import Tensor

from outcome_rl_kernels.checks import FLOATS, as_mask, check_choice, check_like, check_number, check_tensor
from outcome_rl_kernels.loss.types import LOG_RATIO_CLAMP


@torch.no_grad()
def rollout_weights(
    logps: Tensor,
    rollout_logps: Tensor,
    mask: Tensor | None = None,
    *,
    level: Literal["token", "sequence"] = "token",
    outside: Literal["truncate", "mask"] = "truncate",
    low: float = 0.0,
    high: float = 2.0,
) -> Tensor:
    """Return importance weights for `linear_policy_loss(..., rollout_weights=...)`; see the module for formulas.

    Args:
        logps: (B, T), or any shape for tokens; log-probabilities of the sampled tokens under the policy; the loss's
            `old_logps` where it has some, because its ratio corrects for what changed since.
        rollout_logps: like `logps`, under the engine that sampled; NaN where the engine returned none, as some do late
            in training for tokens of probability near 1.
        mask: bool or integers 0 and 1 like `logps`, True on completion tokens; needed for sequences.
        level: the ratio of a token, or of a whole sequence.
        outside: a ratio outside [low, high] is moved to the nearer bound, or its weight is 0.
        low, high: bounds of the ratio, 0 <= low <= high.

    Returns:
        Weights without gradient, like `logps`, or (B,) for sequences; finite unless `logps` are NaN.

    Raises:
        TypeError, ValueError: an argument has the wrong type, dtype, shape, device or range.
    """
    check_tensor("logps", logps, FLOATS)
    check_like("rollout_logps", rollout_logps, FLOATS, "logps", logps)
    check_choice("level", level, ("token", "sequence"))
    check_choice("outside", outside, ("truncate", "mask"))
    if not 0 <= check_number("low", low) <= high:
        raise ValueError(f"low and high must satisfy 0 <= low <= high; got {low} and {high}")
    if mask is not None:
        mask = as_mask("mask", mask, "logps", logps)
    log_ratios = (logps - rollout_logps).masked_fill(rollout_logps.isnan(), 0)
    if level == "sequence":
        if mask is None or logps.dim() != 2:
            raise ValueError("level='sequence' needs logps of shape (B, T), and a mask")
        log_ratios = log_ratios.where(mask, 0).sum(dim=1)
    ratios = log_ratios.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP).exp()
    if outside == "truncate":
        return ratios.clamp(low, high)
    return ratios.masked_fill((ratios < low) | (ratios > high), 0)
