"""The public names, listed once: type checkers read this file, and `__init__.py` finds names by it on first use."""
# ruff: noqa: I001 - one statement per module

from outcome_rl.exploration import (
    ExplorationConfig as ExplorationConfig,
    Explorer as Explorer,
    Scored as Scored,
)
from outcome_rl.metrics import (
    best_at_k as best_at_k,
    diff_at_k as diff_at_k,
    pass_at_k as pass_at_k,
)
from outcome_rl.outcomes.answer_mask import (
    answer_mask as answer_mask,
)
from outcome_rl.outcomes.extraction import (
    Answer as Answer,
    extract_answer as extract_answer,
)
from outcome_rl.outcomes.keys import (
    NO_ANSWER as NO_ANSWER,
    OUTCOME_RULE as OUTCOME_RULE,
    equivalent as equivalent,
    outcome_key as outcome_key,
    question_id as question_id,
    question_key as question_key,
)
from outcome_rl.outcomes.matcher import (
    OutcomeMatcher as OutcomeMatcher,
    Outcomes as Outcomes,
)
from outcome_rl.version import (
    __version__ as __version__,
)
from outcome_rl_kernels import (
    GroupAdvantages as GroupAdvantages,
    LinearPolicyLoss as LinearPolicyLoss,
    OutcomeCounts as OutcomeCounts,
    PolicyLoss as PolicyLoss,
    PolicyLossOutput as PolicyLossOutput,
    group_advantages as group_advantages,
    linear_logprobs as linear_logprobs,
    linear_policy_loss as linear_policy_loss,
    loss_normalizer as loss_normalizer,
    policy_loss as policy_loss,
)
