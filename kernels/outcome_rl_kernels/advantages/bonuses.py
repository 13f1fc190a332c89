"""Exploration bonuses: a signal for each sample, from its outcome and how often that outcome was seen before.

| name             | signal S_i                            | all answers correct |
|------------------|---------------------------------------|---------------------|
| `none`           | 0                                     | 0                   |
| `ucb`            | b_i = min(1, N(x, a_i)^(-1/2))        | unchanged           |
| `ucb_mean`       | b_i - mean of the other samples' b    | 0                   |
| `ucb_con`        | b_i - b0                              | 0                   |
| `batch`          | -(1/n) #{j != i : a_j = a_i}          | unchanged           |
| `batch_positive` | 1 if a_i occurs once in the group     | unchanged           |

N(x, a) is the number of times outcome a was sampled for question x before this batch; N = 0 gives b = 1. A sample
without an answer has b = 0.
Source: Song, Kempe, Munos, "Outcome-based Exploration for LLM Reasoning", 2025, section 3.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from outcome_rl_kernels.advantages.groups import Groups
from outcome_rl_kernels.registry import add_by_name

BonusFunction = Callable[[Groups], Tensor]
Function = TypeVar("Function", bound=BonusFunction)


@dataclass(frozen=True)
class Bonus:
    """A registered bonus; the fields are the arguments of `register_bonus`."""

    function: BonusFunction
    needs_counts: bool
    zero_when_all_correct: bool
    scores_no_answer: bool


BONUSES: dict[str, Bonus] = {}


def register_bonus(
    name: str, *, needs_counts: bool = True, zero_when_all_correct: bool = False, scores_no_answer: bool = False
) -> Callable[[Function], Function]:
    """Make a function available as `bonus=name`, by itself or in a sum, in every training stack.

    The coefficient and `zero_when_all_correct` of the settings apply as to every bonus.

    Args:
        name: letters, digits and underscores; not the name of another bonus.
        needs_counts: whether it reads `groups.counts`, so that a call without a count table is refused.
        zero_when_all_correct: whether a group whose answers are all correct gets no signal, unless the settings say
            otherwise.
        scores_no_answer: whether the function gives samples without an answer their signal. Otherwise they get 0,
            unless `no_answer="own_class"`.

    Returns:
        A decorator for `function(groups: Groups) -> signal`, (B, n) and floating point. It must not
        synchronise with the host.

    Raises:
        ValueError: the name is taken, or is not a name.

    Example:
        >>> @register_bonus("inverse_count")
        ... def inverse_count(groups):
        ...     return 1 / (1 + groups.counts)
    """

    def register(function: Function) -> Function:
        add_by_name(BONUSES, "bonus", name, Bonus(function, needs_counts, zero_when_all_correct, scores_no_answer))
        return function

    return register


def raw_bonus(groups: Groups) -> Tensor:
    """Return `b = min(1, N^-1/2)`, and 0 for a sample without an answer."""
    if groups.counts is None:
        raise ValueError("the bonus needs groups.counts, the historical counts; register it with needs_counts=True")
    dtype = groups.rewards.dtype
    # `rsqrt` of integers gives the default dtype, so float32 rewards need no cast.
    counts_Bn = groups.counts if dtype == torch.get_default_dtype() else groups.counts.to(dtype)
    return torch.minimum(counts_Bn.rsqrt(), groups.earns_bonus)  # N = 0 gives infinity


@register_bonus("none", needs_counts=False, scores_no_answer=True)
def none(groups: Groups) -> Tensor:
    return torch.zeros_like(groups.rewards)


@register_bonus("ucb", scores_no_answer=True)
def ucb(groups: Groups) -> Tensor:
    return raw_bonus(groups)


@register_bonus("ucb_mean", zero_when_all_correct=True, scores_no_answer=True)
def ucb_mean(groups: Groups) -> Tensor:
    """Return 0 for a group of one sample."""
    bonus_Bn, others = raw_bonus(groups), groups.rewards.shape[1] - 1
    if others == 0:
        return torch.zeros_like(bonus_Bn)
    return bonus_Bn - (bonus_Bn.sum(dim=1, keepdim=True) - bonus_Bn) / others


@register_bonus("ucb_con", zero_when_all_correct=True, scores_no_answer=True)
def ucb_con(groups: Groups) -> Tensor:
    return raw_bonus(groups) - groups.baseline


@register_bonus("batch", needs_counts=False, scores_no_answer=True)
def batch(groups: Groups) -> Tensor:
    """Treat "no answer" as a class like any other."""
    return (1 - groups.multiplicity).to(groups.rewards.dtype) / groups.rewards.shape[1]


@register_bonus("batch_positive", needs_counts=False)
def batch_positive(groups: Groups) -> Tensor:
    return (groups.multiplicity == 1).to(groups.rewards.dtype)


BUILT_IN = frozenset(BONUSES)
