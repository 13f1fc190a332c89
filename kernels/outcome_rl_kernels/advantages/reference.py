"""Group advantages with outcome-based exploration: the specification, in plain PyTorch.

Shapes: B groups (one question each), n samples per group.

    A_i = (r_i - mean(r)) / (std(r) + eps)             reward part, GRPO
    A_i + sum_m c_m * S_i^(m)                          S: exploration signal of method m

| method           | raw bonus b_i              | signal S_i                        | all answers correct |
|------------------|----------------------------|-----------------------------------|---------------------|
| `none`           |                            | 0                                 | 0                   |
| `ucb`            | min(1, N(x, a_i)^(-1/2))   | b_i                               | unchanged           |
| `ucb_mean`       | as above                   | b_i - mean of the other samples' b| 0                   |
| `ucb_con`        | as above                   | b_i - b0                          | 0                   |
| `batch`          |                            | -(1/n) #{j != i : a_j = a_i}      | unchanged           |
| `batch_positive` |                            | 1 if a_i occurs once in the group | unchanged           |

N(x, a) is the number of times outcome a was sampled for question x before this batch, or with count="after" up to and
with this batch; N = 0 gives b = 1. `exponent` replaces the 1/2. `only` restricts the sum of signals: "incorrect" gives
correct samples none, "unsolved" gives groups with a correct sample none.
Source: Song, Kempe, Munos, "Outcome-based Exploration for LLM Reasoning", 2025, section 3. The sum of several methods
is ours: the paper calls historical and batch exploration complementary and gives no formula.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor

from outcome_rl_kernels.checks import check_shape_of
from outcome_rl_kernels.counts.api import OutcomeCounts
from outcome_rl_kernels.registry import add_by_name

NoAnswerRule = Literal["no_bonus", "own_class"]
Scale = Literal["std", "none"]
Only = Literal["all", "incorrect", "unsolved"]
CountTime = Literal["before", "after"]

BONUS_METHODS: tuple[str, ...] = get_args(Literal["none", "ucb", "ucb_mean", "ucb_con", "batch", "batch_positive"])
COUNT_METHODS = frozenset({"ucb", "ucb_mean", "ucb_con"})  # need historical counts
ZERO_WHEN_ALL_CORRECT = frozenset({"ucb_mean", "ucb_con"})  # the paper's rule: no pull away from a solved question
NO_ANSWER = 0  # reserved outcome key: a response without an extractable answer

BonusFunction = Callable[[Tensor, Tensor], Tensor]
REGISTERED_BONUSES: dict[str, BonusFunction] = {}


def register_bonus(name: str) -> Callable[[BonusFunction], BonusFunction]:
    """Make a function available as `bonus=name`, alone or in a sum, in every training stack.

    A response without an answer gets the signal 0, unless `no_answer="own_class"`. Coefficient, `only` and
    `zero_when_all_correct` apply as to the built-in methods.

    Args:
        name: letters, digits and underscores; not the name of another bonus.

    Returns:
        A decorator for `function(outcome_keys, counts) -> signal`: (B, n) int64 outcome keys, (B, n) int64 counts
        before the batch, (B, n) floating-point signals.

    Raises:
        ValueError: the name is taken, or is not a name.

    Example:
        >>> @register_bonus("inverse_count")
        ... def inverse_count(outcome_keys, counts):
        ...     return 1 / (1 + counts)
    """
    return partial(add_by_name, REGISTERED_BONUSES, "bonus", name, taken=BONUS_METHODS)


def needs_counts(method: str) -> bool:
    return method in COUNT_METHODS or method in REGISTERED_BONUSES


def is_zeroed(method: str, zero_when_all_correct: bool | None) -> bool:
    """Say whether a group whose answers are all correct gets no signal of this method; None follows the table."""
    return method in ZERO_WHEN_ALL_CORRECT if zero_when_all_correct is None else zero_when_all_correct


class GroupSettings(NamedTuple):
    """The options of `group_advantages` after its checks."""

    methods: tuple[str, ...]
    coefs: tuple[float, ...]
    baseline: float = 0.5
    exponent: float = 0.5
    zero_when_all_correct: bool | None = None
    no_answer: NoAnswerRule = "no_bonus"
    scale: Scale = "std"
    ddof: int = 1
    eps: float = 1e-6

    @property
    def zeroed(self) -> tuple[bool, ...]:
        """For each method, whether a group whose answers are all correct gets no signal of it."""
        return tuple(is_zeroed(method, self.zero_when_all_correct) for method in self.methods)


def reward_advantages(rewards_Bn: Tensor, *, scale: Scale = "std", ddof: int = 1, eps: float = 1e-6) -> Tensor:
    """Group-normalised rewards, `(r - mean) / (std + eps)`; a group with equal rewards gets exactly 0."""
    centred_Bn = rewards_Bn - rewards_Bn.mean(dim=1, keepdim=True)
    equal_B1 = rewards_Bn.amax(dim=1, keepdim=True) == rewards_Bn.amin(dim=1, keepdim=True)
    if scale == "std":
        # Clamped so that n = ddof divides by 1: such a group is masked to 0 below and must not pass through NaN.
        degrees_of_freedom = max(rewards_Bn.shape[1] - ddof, 1)
        std_B1 = (centred_Bn.square().sum(dim=1, keepdim=True) / degrees_of_freedom).sqrt()
        centred_Bn = centred_Bn / (std_B1 + eps)
    return centred_Bn.masked_fill(equal_B1, 0.0)  # the mean of equal floats may differ from them by an ulp


def historical_bonus(counts_Bn: Tensor, dtype: torch.dtype, exponent: float = 0.5) -> Tensor:
    """Raw UCB bonus `min(1, N^-exponent)` of counts (B, n) int64 taken before the batch; N = 0 gives 1."""
    seen_Bn = counts_Bn.clamp(min=1)
    return seen_Bn.to(dtype).rsqrt() if exponent == 0.5 else seen_Bn.double().pow(-exponent).to(dtype)


def exploration_signal(
    method: str, outcome_keys_Bn: Tensor, counts_Bn: Tensor | None, settings: GroupSettings, dtype: torch.dtype
) -> Tensor:
    """Exploration signal S of one method, before its coefficient and before the all-correct rule.

    Of the settings it reads `baseline`, `exponent`, and `no_answer`, whose "no_bonus" keeps malformed text from earning
    novelty.
    """
    n = outcome_keys_Bn.shape[1]
    if method == "none":
        return torch.zeros_like(outcome_keys_Bn, dtype=dtype)
    no_bonus = settings.no_answer == "no_bonus"
    if needs_counts(method) and counts_Bn is None:
        raise ValueError(f"bonus {method!r} needs the historical counts of the group's outcomes; got counts=None")
    if method in REGISTERED_BONUSES:
        signal_Bn = REGISTERED_BONUSES[method](outcome_keys_Bn, cast(Tensor, counts_Bn)).to(dtype)
        check_shape_of(f"the result of bonus={method!r}", signal_Bn, "outcome_keys", outcome_keys_Bn)
        return signal_Bn.masked_fill(outcome_keys_Bn == NO_ANSWER, 0.0) if no_bonus else signal_Bn
    if method in COUNT_METHODS:
        bonus_Bn = historical_bonus(cast(Tensor, counts_Bn), dtype, settings.exponent)
        if no_bonus:
            bonus_Bn = bonus_Bn.masked_fill(outcome_keys_Bn == NO_ANSWER, 0.0)
        if method == "ucb":
            return bonus_Bn
        if method == "ucb_con":
            return bonus_Bn - settings.baseline
        if n == 1:
            return torch.zeros_like(bonus_Bn)
        others_mean_Bn = (bonus_Bn.sum(dim=1, keepdim=True) - bonus_Bn) / (n - 1)
        return bonus_Bn - others_mean_Bn
    multiplicity_Bn = (outcome_keys_Bn[:, :, None] == outcome_keys_Bn[:, None, :]).sum(dim=2)
    if method == "batch":
        return -(multiplicity_Bn - 1).to(dtype) / n
    unique_Bn = multiplicity_Bn == 1
    if no_bonus:
        unique_Bn = unique_Bn & (outcome_keys_Bn != NO_ANSWER)
    return unique_Bn.to(dtype)


def restricted(bonuses_Bn: Tensor, correct_Bn: Tensor, only: Only) -> Tensor:
    """Set the bonuses of correct samples ("incorrect") or of groups with a correct one ("unsolved") to 0."""
    if only == "all":
        return bonuses_Bn
    without_Bn = correct_Bn if only == "incorrect" else correct_Bn.any(dim=1, keepdim=True)
    return bonuses_Bn.masked_fill(without_Bn, 0.0)


def exploration_bonuses(
    outcome_keys_Bn: Tensor,
    counts_Bn: Tensor | None,
    all_correct_B: Tensor,
    settings: GroupSettings,
    dtype: torch.dtype,
) -> Tensor:
    """Sum over methods of `coef * signal`, with the rule for groups whose answers are all correct."""
    total_Bn = torch.zeros_like(outcome_keys_Bn, dtype=dtype)
    for method, coef, zeroed in zip(settings.methods, settings.coefs, settings.zeroed, strict=True):
        signal_Bn = exploration_signal(method, outcome_keys_Bn, counts_Bn, settings, dtype)
        if zeroed:
            signal_Bn = signal_Bn.masked_fill(all_correct_B[:, None], 0.0)
        total_Bn = total_Bn + coef * signal_Bn
    return total_Bn


def reference_group_advantages(
    rewards_Bn: Tensor,
    question_keys_B: Tensor,
    outcome_keys_Bn: Tensor,
    correct_Bn: Tensor | None,
    counts: OutcomeCounts | None,
    settings: GroupSettings,
    update: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return advantages, bonuses and, with counts, those before; the arguments are checked."""
    before_Bn = None
    if counts is not None:
        before_Bn = (counts.observe if update else counts.lookup)(question_keys_B, outcome_keys_Bn)
    advantages_Bn = reward_advantages(rewards_Bn, scale=settings.scale, ddof=settings.ddof, eps=settings.eps)
    all_correct_B = (rewards_Bn > 0 if correct_Bn is None else correct_Bn).all(dim=1)
    bonuses_Bn = exploration_bonuses(outcome_keys_Bn, before_Bn, all_correct_B, settings, rewards_Bn.dtype)
    return advantages_Bn, bonuses_Bn, before_Bn
