"""Tensors in, tensors out: policy loss, log-probabilities, outcome counts and group advantages.

The package knows nothing of answers, trainers or configs. `outcome_rl` exports the same names.
"""

from outcome_rl_kernels.advantages.api import GroupAdvantages, GroupRule, group_advantages
from outcome_rl_kernels.advantages.bonuses import register_bonus
from outcome_rl_kernels.advantages.estimators import register_adv_estimator
from outcome_rl_kernels.advantages.groups import Groups
from outcome_rl_kernels.backends import implementations
from outcome_rl_kernels.counts.api import OutcomeCounts
from outcome_rl_kernels.loss.api import (
    LinearPolicyLoss,
    PolicyLoss,
    PolicyLossOutput,
    linear_policy_loss,
    loss_normalizer,
    policy_loss,
)
from outcome_rl_kernels.loss.inputs import active_tokens
from outcome_rl_kernels.loss.logprobs import linear_logprobs
from outcome_rl_kernels.loss.losses import register_token_loss
from outcome_rl_kernels.loss.rollout_weights import rollout_weights
from outcome_rl_kernels.loss.types import Support, TokenLoss

__all__ = [
    "GroupAdvantages",
    "GroupRule",
    "Groups",
    "LinearPolicyLoss",
    "OutcomeCounts",
    "PolicyLoss",
    "PolicyLossOutput",
    "Support",
    "TokenLoss",
    "active_tokens",
    "group_advantages",
    "implementations",
    "linear_logprobs",
    "linear_policy_loss",
    "loss_normalizer",
    "policy_loss",
    "register_adv_estimator",
    "register_bonus",
    "register_token_loss",
    "rollout_weights",
]
