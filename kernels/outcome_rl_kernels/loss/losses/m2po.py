"""M2PO: `-r A` without a clip, 0 for the tokens that moved furthest, so that the rest has a bounded second moment.

arXiv:2510.01161, algorithm 1. Of the tokens of a call whose ratio moved the way of their advantage (r > 1 where A > 0,
r < 1 where A < 0), those with the largest (log r)^2 are dropped until the mean of it over the others is at most tau.
Equal values are dropped together. The denominator still counts the dropped tokens.
"""

import math

import torch
from torch import Tensor

from outcome_rl_kernels.loss.ratios import importance_ratios, log_ratios
from outcome_rl_kernels.loss.types import LossInputs, TokenLoss


def m2po(tau: float = 0.04) -> TokenLoss:
    """Return M2PO with its bound.

    Args:
        tau: > 0, bound of the mean of (log r)^2.

    Raises:
        ValueError: it is not positive.
    """
    if not tau > 0:
        raise ValueError(f"tau must be > 0; got {tau}")

    def clipped(logps: Tensor, inputs: LossInputs) -> Tensor:
        moves, advantages = log_ratios(logps.detach(), inputs), inputs.advantages
        outward = ((moves > 0) & (advantages > 0)) | ((moves < 0) & (advantages < 0))
        if inputs.active is not None:
            outward = outward & inputs.active
        squares = moves.double().square().masked_fill(~outward, math.inf)
        rising = torch.nn.functional.pad(squares.sort().values, (0, 1), value=math.inf)
        means = rising.cumsum(0) / torch.arange(1, len(rising) + 1, device=rising.device)
        least_dropped = rising.masked_fill(means <= tau, math.inf).amin()
        return outward & (squares >= least_dropped)

    def loss(logps: Tensor, entropies: Tensor, inputs: LossInputs) -> Tensor:
        losses = -importance_ratios(logps, inputs) * inputs.advantages
        return losses if inputs.old_logps is None else losses.masked_fill(clipped(logps, inputs), 0.0)

    return TokenLoss(loss, needs_sequences=True, scales_with_advantage=True, clipped=clipped)


LOSSES = {"m2po": m2po()}
