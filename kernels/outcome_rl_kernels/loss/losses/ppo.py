"""PPO's clipped surrogate: `-min(r A, clip(r, 1 - el, 1 + eh) A)`, at most `-delta A` where A < 0.

arXiv:1707.06347; dual clip, arXiv:1912.09729. The default, and the only loss with a dedicated GPU kernel.
"""

from torch import Tensor

from outcome_rl_kernels.loss.ratios import clipped_surrogate, importance_ratios, is_clipped
from outcome_rl_kernels.loss.types import LossInputs, TokenLoss


def ppo(logps: Tensor, entropies: Tensor, inputs: LossInputs) -> Tensor:
    return clipped_surrogate(importance_ratios(logps, inputs), inputs)


def clipped(logps: Tensor, inputs: LossInputs) -> Tensor:
    return is_clipped(importance_ratios(logps, inputs), inputs)


LOSSES = {"ppo": TokenLoss(ppo, scales_with_advantage=True, clipped=clipped)}
