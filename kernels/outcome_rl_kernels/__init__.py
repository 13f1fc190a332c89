"""Tensors in, tensors out: policy loss, log-probabilities, outcome counts and group advantages.

Knows nothing of answers, drivers or configs. Users find the same names in `outcome_rl`.
"""

from outcome_rl_kernels.advantages import GroupAdvantages, group_advantages, parse_bonus
from outcome_rl_kernels.counts import OutcomeCounts
from outcome_rl_kernels.dispatch import implementations
from outcome_rl_kernels.logprobs import linear_logprobs
from outcome_rl_kernels.modules import LinearPolicyLoss, PolicyLoss
from outcome_rl_kernels.policy_loss import linear_policy_loss, loss_normalizer, policy_loss
from outcome_rl_kernels.reference import PolicyLossOutput

__all__ = [
    "GroupAdvantages",
    "LinearPolicyLoss",
    "OutcomeCounts",
    "PolicyLoss",
    "PolicyLossOutput",
    "group_advantages",
    "implementations",
    "linear_logprobs",
    "linear_policy_loss",
    "loss_normalizer",
    "parse_bonus",
    "policy_loss",
]
