"""RL-ZVP: a token loss that learns from groups of equal rewards by the entropies of their tokens (arXiv:2509.21880).

    A_t = alpha H_t                      all samples of the group are correct
    A_t = -alpha (max of H - H_t)        all are wrong; the maximum is over the tokens of the response

H is the entropy of a token, a constant. Other groups keep their advantages. The advantages come from
`adv_estimator="rl_zvp"`, which marks the groups of equal rewards; a bonus replaces a mark.
"""

from dataclasses import replace

import torch
from torch import Tensor

from outcome_rl_kernels.advantages.groups import MARK
from outcome_rl_kernels.loss.losses import token_loss_of
from outcome_rl_kernels.loss.ratios import max_by_sequence
from outcome_rl_kernels.loss.types import LossInputs, TokenLoss, TokenLossFunction


def zero_variance(loss: str | TokenLoss | TokenLossFunction, alpha: float = 0.1) -> TokenLoss:
    """Apply a token loss with RL-ZVP's advantages in groups of equal rewards.

    Args:
        loss: the token loss.
        alpha: > 0, the size of these advantages, per nat of entropy.

    Raises:
        ValueError: alpha is not positive.
    """
    inner = token_loss_of(loss)
    if not alpha > 0:
        raise ValueError(f"alpha must be > 0; got {alpha}")

    def shaped(logps: Tensor, entropies: Tensor, inputs: LossInputs) -> Tensor:
        advantages, entropies = inputs.advantages, entropies.detach()
        of_correct = alpha * entropies
        of_wrong = of_correct - alpha * max_by_sequence(entropies, inputs)
        given = torch.where(advantages > 0, of_correct, of_wrong)
        is_marked = (advantages.abs() <= MARK) & (advantages != 0)
        return inner(logps, entropies, inputs._replace(advantages=torch.where(is_marked, given, advantages)))

    # The maximum is over tokens without an advantage too, such as the answer's.
    return replace(inner, function=shaped, needs_sequences=True, scales_with_advantage=False)


rl_zvp = zero_variance("ppo")  # actor.loss_mode=outcome_rl_kernels.loss.zero_variance:rl_zvp
