"""GSPO: PPO's clipped surrogate with r the geometric mean of the ratios of the sequence.

arXiv:2507.18071, its token variant (section 4.3).
"""

from torch import Tensor

from outcome_rl_kernels.loss.ratios import clipped_surrogate, is_clipped, sequence_ratios
from outcome_rl_kernels.loss.types import LossInputs, TokenLoss


def gspo(logps: Tensor, entropies: Tensor, inputs: LossInputs) -> Tensor:
    return clipped_surrogate(sequence_ratios(logps, inputs), inputs)


def clipped(logps: Tensor, inputs: LossInputs) -> Tensor:
    return is_clipped(sequence_ratios(logps, inputs), inputs)


LOSSES = {
    "gspo": TokenLoss(gspo, needs_sequences=True, scales_with_advantage=True, ratios=sequence_ratios, clipped=clipped)
}
