"""Outcome-based exploration and a fused policy loss for RL on reasoning models.

Names are resolved on first use, so that `import outcome_rl` costs milliseconds and a process that only grades answers
never loads torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from outcome_rl.version import __version__

if TYPE_CHECKING:
    from outcome_rl.metrics import best_at_k, diff_at_k, pass_at_k
    from outcome_rl.outcomes.answer_mask import answer_mask
    from outcome_rl.outcomes.extraction import Answer, extract_answer
    from outcome_rl.outcomes.keys import NO_ANSWER, OUTCOME_RULE, equivalent, outcome_key, question_key
    from outcome_rl.outcomes.matcher import OutcomeMatcher, Outcomes
    from outcome_rl_kernels import (
        GroupAdvantages,
        LinearPolicyLoss,
        OutcomeCounts,
        PolicyLoss,
        PolicyLossOutput,
        group_advantages,
        linear_logprobs,
        linear_policy_loss,
        loss_normalizer,
        policy_loss,
    )

_HOME = {
    "outcome_rl_kernels": (
        "GroupAdvantages",
        "LinearPolicyLoss",
        "OutcomeCounts",
        "PolicyLoss",
        "PolicyLossOutput",
        "group_advantages",
        "linear_logprobs",
        "linear_policy_loss",
        "loss_normalizer",
        "policy_loss",
    ),
    "outcome_rl.metrics": ("best_at_k", "diff_at_k", "pass_at_k"),
    "outcome_rl.outcomes.extraction": ("Answer", "extract_answer"),
    "outcome_rl.outcomes.keys": ("NO_ANSWER", "OUTCOME_RULE", "equivalent", "outcome_key", "question_key"),
    "outcome_rl.outcomes.matcher": ("OutcomeMatcher", "Outcomes"),
    "outcome_rl.outcomes.answer_mask": ("answer_mask",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [  # noqa: RUF022 - grouped by module
    "__version__",
    "GroupAdvantages",
    "LinearPolicyLoss",
    "OutcomeCounts",
    "PolicyLoss",
    "PolicyLossOutput",
    "group_advantages",
    "linear_logprobs",
    "linear_policy_loss",
    "loss_normalizer",
    "policy_loss",
    "best_at_k",
    "diff_at_k",
    "pass_at_k",
    "Answer",
    "extract_answer",
    "NO_ANSWER",
    "OUTCOME_RULE",
    "equivalent",
    "outcome_key",
    "question_key",
    "OutcomeMatcher",
    "Outcomes",
    "answer_mask",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'outcome_rl' has no attribute {name!r}; it offers {', '.join(sorted(__all__))}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
