"""SAPO: `-A (4 / tau) sigmoid(tau (r - 1))`, a soft gate in place of a clip.

arXiv:2511.20347. By default tau is 1 where A > 0, and 1.05 elsewhere.
"""

import torch
from torch import Tensor

from outcome_rl_kernels.loss.ratios import importance_ratios
from outcome_rl_kernels.loss.types import LossInputs, TokenLoss


def sapo(tau_positive: float = 1.0, tau_negative: float = 1.05) -> TokenLoss:
    """Return SAPO with its temperatures.

    Args:
        tau_positive, tau_negative: > 0, sharpness of the gate where the advantage is positive, and elsewhere.

    Raises:
        ValueError: one is not positive.
    """
    if not (tau_positive > 0 and tau_negative > 0):
        raise ValueError(f"tau_positive and tau_negative must be > 0; got {tau_positive} and {tau_negative}")

    def loss(logps: Tensor, entropies: Tensor, inputs: LossInputs) -> Tensor:
        advantages = inputs.advantages
        tau = torch.full_like(advantages, tau_negative).masked_fill(advantages > 0, tau_positive)
        return -advantages * (4 / tau) * torch.sigmoid(tau * (importance_ratios(logps, inputs) - 1))

    return TokenLoss(loss, scales_with_advantage=True)


LOSSES = {"sapo": sapo()}
