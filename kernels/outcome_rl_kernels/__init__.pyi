"""The public names, listed once: type checkers read this file, and `__init__.py` finds names by it on first use."""

from outcome_rl_kernels.advantages.api import GroupAdvantages as GroupAdvantages
from outcome_rl_kernels.advantages.api import GroupRule as GroupRule
from outcome_rl_kernels.advantages.api import group_advantages as group_advantages
from outcome_rl_kernels.advantages.bonuses import register_bonus as register_bonus
from outcome_rl_kernels.advantages.estimators import register_adv_estimator as register_adv_estimator
from outcome_rl_kernels.advantages.groups import Groups as Groups
from outcome_rl_kernels.backends import implementations as implementations
from outcome_rl_kernels.counts.api import OutcomeCounts as OutcomeCounts
from outcome_rl_kernels.loss.api import PolicyLossOutput as PolicyLossOutput
from outcome_rl_kernels.loss.api import linear_policy_loss as linear_policy_loss
from outcome_rl_kernels.loss.api import loss_normalizer as loss_normalizer
from outcome_rl_kernels.loss.api import policy_loss as policy_loss
from outcome_rl_kernels.loss.divergence import DivergenceOutput as DivergenceOutput
from outcome_rl_kernels.loss.divergence import linear_divergence as linear_divergence
from outcome_rl_kernels.loss.inputs import active_tokens as active_tokens
from outcome_rl_kernels.loss.logprobs import linear_logprobs as linear_logprobs
from outcome_rl_kernels.loss.losses import register_token_loss as register_token_loss
from outcome_rl_kernels.loss.rollout_weights import rollout_weights as rollout_weights
from outcome_rl_kernels.loss.types import Support as Support
from outcome_rl_kernels.loss.types import TokenLoss as TokenLoss
