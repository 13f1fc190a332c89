"""CISPO: `-sg(clip(r, 1 - el, 1 + eh)) A lp`, which clips the weight of a token but keeps its gradient.

arXiv:2506.13585.
"""

from torch import Tensor

from outcome_rl_kernels.loss.ratios import importance_ratios
from outcome_rl_kernels.loss.types import LossInputs, TokenLoss


def cispo(logps: Tensor, entropies: Tensor, inputs: LossInputs) -> Tensor:
    ratios, settings = importance_ratios(logps, inputs).detach(), inputs.settings
    return -ratios.clamp(1 - settings.epsilon_low, 1 + settings.epsilon_high) * inputs.advantages * logps


def clipped(logps: Tensor, inputs: LossInputs) -> Tensor:
    ratios, settings = importance_ratios(logps, inputs), inputs.settings
    return (ratios < 1 - settings.epsilon_low) | (ratios > 1 + settings.epsilon_high)


LOSSES = {"cispo": TokenLoss(cispo, scales_with_advantage=True, clipped=clipped)}
