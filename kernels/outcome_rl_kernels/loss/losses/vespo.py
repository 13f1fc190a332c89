"""VESPO: `-phi(w) A lp`, w the ratio of the whole sequence, `phi(w) = w^k exp(lambda (1 - w))` a constant.

arXiv:2602.10693. w is the product of the ratios and, where there are some, of the rollout weights over the sequence,
within 1e-8 and e^20; phi(1) = 1.
"""

import math

import torch
from torch import Tensor

from outcome_rl_kernels.loss.ratios import exp, log_ratios, sum_by_sequence
from outcome_rl_kernels.loss.types import LossInputs, TokenLoss

_LEAST, _MOST = math.log(1e-8), 20.0


def vespo(
    k_positive: float = 2.0, lambda_positive: float = 3.0, k_negative: float = 3.0, lambda_negative: float = 2.0
) -> TokenLoss:
    """Return VESPO with its exponents.

    Args:
        k_positive, lambda_positive: k and lambda, >= 0, where the advantage is at least 0.
        k_negative, lambda_negative: where it is negative.

    Raises:
        ValueError: an argument is negative.
    """
    numbers = k_positive, lambda_positive, k_negative, lambda_negative
    if not all(number >= 0 for number in numbers):
        raise ValueError(f"k_positive, lambda_positive, k_negative and lambda_negative must be >= 0; got {numbers}")

    def weights(logps: Tensor, inputs: LossInputs) -> Tensor:
        ratios = log_ratios(logps.detach(), inputs)
        if inputs.rollout_weights is not None:
            ratios = ratios + inputs.rollout_weights.log().clamp(_LEAST, _MOST)
        log_w = sum_by_sequence(ratios, inputs).clamp(_LEAST, _MOST)
        up = inputs.advantages >= 0
        k = torch.full_like(log_w, k_negative).masked_fill(up, k_positive)
        decay = torch.full_like(log_w, lambda_negative).masked_fill(up, lambda_positive)
        return exp(decay + k * log_w - decay * exp(log_w))

    def loss(logps: Tensor, entropies: Tensor, inputs: LossInputs) -> Tensor:
        if inputs.old_logps is None and inputs.rollout_weights is None:  # w is 1
            return -inputs.advantages * logps
        return -weights(logps, inputs) * inputs.advantages * logps

    return TokenLoss(loss, needs_sequences=True, scales_with_advantage=True, weighs_rollouts=True)


LOSSES = {"vespo": vespo()}
