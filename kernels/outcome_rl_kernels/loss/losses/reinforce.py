"""REINFORCE: `-A lp`, whatever the ratio (Williams 1992, doi:10.1007/BF00992696)."""

from torch import Tensor

from outcome_rl_kernels.loss.types import LossInputs, TokenLoss


def reinforce(logps: Tensor, entropies: Tensor, inputs: LossInputs) -> Tensor:
    return -inputs.advantages * logps


LOSSES = {"reinforce": TokenLoss(reinforce, scales_with_advantage=True)}
