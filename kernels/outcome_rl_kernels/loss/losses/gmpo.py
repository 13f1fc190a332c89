"""GMPO: `-A` times the geometric mean over the sequence of `exp(clip(log r, -el, eh))`, clipped as PPO clips.

arXiv:2507.20673. The ratio is bounded upwards where A > 0, and downwards elsewhere. With
`loss_agg="seq-mean-token-mean"` the gradient equals the gradient of the geometric mean over whole sequences.
"""

import torch
from torch import Tensor

from outcome_rl_kernels.loss.ratios import exp, log_ratios, mean_by_sequence
from outcome_rl_kernels.loss.types import LossInputs, TokenLoss


def gmpo(logps: Tensor, entropies: Tensor, inputs: LossInputs) -> Tensor:
    kept = _bounded_log_ratios(logps, inputs)
    if inputs.old_logps is None:
        return -inputs.advantages * exp(kept)
    return -inputs.advantages * exp(kept - kept.detach() + mean_by_sequence(kept.detach(), inputs))


def clipped(logps: Tensor, inputs: LossInputs) -> Tensor:
    return (_bounded_log_ratios(logps, inputs) != log_ratios(logps, inputs)) & (inputs.advantages != 0)


def _bounded_log_ratios(logps: Tensor, inputs: LossInputs) -> Tensor:
    ratios, settings = log_ratios(logps, inputs), inputs.settings
    low, high = ratios.clamp(min=-settings.epsilon_low), ratios.clamp(max=settings.epsilon_high)
    return torch.where(inputs.advantages > 0, high, low)


LOSSES = {"gmpo": TokenLoss(gmpo, needs_sequences=True, scales_with_advantage=True, clipped=clipped)}
