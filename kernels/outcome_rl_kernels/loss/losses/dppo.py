"""DPPO: `-sg(min(r, delta)) A lp`, 0 where a divergence of p and p_old left its bound, el or eh, away from p_old.

arXiv:2602.04879. `dppo_tv` bounds the total variation |p - p_old| of a token, `dppo_kl` its binary KL.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from outcome_rl_kernels.loss.ratios import importance_ratios
from outcome_rl_kernels.loss.types import LossInputs, TokenLoss


def _dppo(moved: Callable[[Tensor, Tensor], Tensor]) -> TokenLoss:
    """Return DPPO by a signed divergence of log-probabilities, new and old: positive where p > p_old."""

    def clipped(logps: Tensor, inputs: LossInputs) -> Tensor:
        if inputs.old_logps is None:
            return torch.zeros_like(logps, dtype=torch.bool)
        distances, settings = moved(logps.detach(), inputs.old_logps), inputs.settings
        up = inputs.advantages > 0
        return (up & (distances > settings.epsilon_high)) | (~up & (distances < -settings.epsilon_low))

    def loss(logps: Tensor, entropies: Tensor, inputs: LossInputs) -> Tensor:
        ratios, most = importance_ratios(logps, inputs).detach(), inputs.settings.delta
        losses = -(ratios if most is None else ratios.clamp(max=most)) * inputs.advantages * logps
        return losses.masked_fill(clipped(logps, inputs), 0.0)

    return TokenLoss(loss, scales_with_advantage=True, clipped=clipped)


def _total_variation(logps: Tensor, old_logps: Tensor) -> Tensor:
    return logps.exp() - old_logps.exp()


def _binary_kl(logps: Tensor, old_logps: Tensor) -> Tensor:
    """Return KL((p_old, 1 - p_old) || (p, 1 - p)) with the sign of p - p_old."""
    others, old_others = (-torch.expm1(values) for values in (logps, old_logps))
    tiny = 1e-8  # as in verl: a token of probability 1 leaves nothing to the others
    old_probs = old_logps.exp()
    of_token = (old_probs * (old_logps - logps)).masked_fill(old_probs == 0, 0.0)  # not 0 * -inf
    kl = of_token + old_others * torch.log((old_others + tiny) / (others + tiny))
    return kl.copysign(logps - old_logps)


LOSSES = {"dppo_tv": _dppo(_total_variation), "dppo_kl": _dppo(_binary_kl)}
