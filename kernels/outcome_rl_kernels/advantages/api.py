"""Group advantages with outcome-based exploration: counts, bonuses and normalised rewards in one call."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from outcome_rl_kernels.advantages.bonuses import BONUSES, BUILT_IN, Bonus
from outcome_rl_kernels.advantages.estimators import Estimator, parse_adv_estimator
from outcome_rl_kernels.advantages.groups import Groups, NoAnswerRule, Scale
from outcome_rl_kernels.checks import (
    FLOATS,
    check_choice,
    check_like,
    check_number,
    check_shape_of,
    check_tensor,
    did_you_mean,
    is_readable,
    shape_text,
)
from outcome_rl_kernels.counts.api import OutcomeCounts
from outcome_rl_kernels.counts.table import NO_ANSWER, Past


class GroupAdvantages(NamedTuple):
    """Result of `group_advantages`, all (B, n) and without gradient; the policy loss takes `advantages` and
    `bonuses`.
    """

    advantages: Tensor  # reward part
    bonuses: Tensor  # exploration part, times its coefficient
    counts: Tensor | None  # int64, times each outcome was seen before this call; None without a count table


class Term(NamedTuple):
    """One bonus of a sum."""

    bonus: Bonus
    coef: float
    zero_when_all_correct: bool


@dataclass(frozen=True)
class GroupRule:
    """Rule that turns the rewards and outcomes of a group into advantages and bonuses; it checks its fields.

    `A_i = (r_i - mean(r)) / (std(r) + eps)`, or another estimator, and `bonus_i = sum over methods of coef * signal_i`;
    the tables of `outcome_rl_kernels.advantages.estimators` and `.bonuses` have the formulas.

    Args:
        adv_estimator: a name in that table, or one from `register_adv_estimator`; numbers in parentheses, as in
            `pass_at_k(k=4)`.
        bonus: a name in that table, one from `register_bonus`, or several joined by "+".
        coef: coefficient c >= 0 of the bonus, or one for each method of a sum, as Python numbers; the paper uses 0.1
            (Llama) and 0.2 (Qwen).
        baseline: b0 of `ucb_con`; the paper uses 1 (easy data) and 0.5 (medium).
        zero_when_all_correct: whether a group whose answers are all correct gets no exploration signal. None follows
            the paper: yes for `ucb_mean` and `ucb_con`, no for the others.
        no_answer: "no_bonus" gives a response without an answer the raw bonus 0; "own_class" treats it like any
            outcome.
        scale: "std", or "none" to leave out the division of `grpo` and of estimators built on it (Dr. GRPO).
        ddof: delta degrees of freedom of the standard deviation; 1 as in verl and TRL.
        eps: >= 0, added to the standard deviation.

    Raises:
        TypeError, ValueError: a field has the wrong type or is out of its range.
    """

    adv_estimator: str = "grpo"
    bonus: str = "ucb_con"
    coef: float | Sequence[float] = 0.1
    baseline: float = 0.5
    zero_when_all_correct: bool | None = None
    no_answer: NoAnswerRule = "no_bonus"
    scale: Scale = "std"
    ddof: int = 1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        check_number("baseline", self.baseline)
        if self.zero_when_all_correct is not None and not isinstance(self.zero_when_all_correct, bool):
            raise TypeError(f"zero_when_all_correct must be True, False or None; got {self.zero_when_all_correct!r}")
        check_choice("no_answer", self.no_answer, ("no_bonus", "own_class"))
        check_choice("scale", self.scale, ("std", "none"))
        check_choice("ddof", self.ddof, (0, 1))
        check_number("eps", self.eps, least=0)
        _ = self.terms, self.estimator

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The bonuses of the sum, each with its coefficient."""
        methods = parse_bonus(self.bonus)
        coefs = self.coef if isinstance(self.coef, Sequence) else [self.coef] * len(methods)
        if len(coefs) != len(methods):
            raise ValueError(
                f"coef must be one number, or one for each method of bonus={self.bonus!r}, {len(methods)} in all; got "
                f"{self.coef}"
            )
        rule, terms = self.zero_when_all_correct, []
        for method, coef in zip(methods, coefs, strict=True):
            bonus = BONUSES[method]
            zeroed = method != "none" and (bonus.zero_when_all_correct if rule is None else rule)
            terms.append(Term(bonus, check_number("coef", coef, least=0), zeroed))
        return tuple(terms)

    @cached_property
    def estimator(self) -> Estimator:
        """The function of `adv_estimator`, with its numbers, and the columns that it needs."""
        return parse_adv_estimator(self.adv_estimator)

    @property
    def may_refuse(self) -> bool:
        """Whether the estimator or a bonus may fail, so that a batch is counted only after they ran."""
        return self.adv_estimator != "grpo" or not BUILT_IN.issuperset(parse_bonus(self.bonus))


def parse_bonus(bonus: str) -> tuple[str, ...]:
    """Return the methods of `bonus`, such as "ucb_con" or "ucb_con+batch"; of "module:function" the function.

    Raises:
        TypeError: `bonus` is no string.
        ValueError: a method is unknown, occurs twice, or "none" is combined with another.
    """
    if not isinstance(bonus, str):
        raise TypeError(f"bonus must be a str, such as 'batch' or 'none'; got {type(bonus).__name__}")
    methods = tuple(part.rpartition(":")[2].strip() for part in bonus.split("+"))
    for method in methods:
        if method not in BONUSES:
            known = ", ".join(map(repr, BONUSES))
            raise ValueError(
                f"bonus must be one of {known}, several joined by '+', or your own by register_bonus; got {bonus!r}"
                f"{did_you_mean(method, BONUSES)}"
            )
    if len(set(methods)) != len(methods) or ("none" in methods and len(methods) > 1):
        raise ValueError(f"bonus may name each method once, and 'none' only without others; got {bonus!r}")
    return methods


def group_advantages(
    rewards: Tensor,
    question_keys: Tensor,
    outcome_keys: Tensor,
    counts: OutcomeCounts | None = None,
    rule: GroupRule | None = None,
    *,
    correct: Tensor | None = None,
    past: Past | None = None,
    batch: int = 0,
    update: bool = True,
    **settings: Any,
) -> GroupAdvantages:
    """Compute normalised rewards and exploration bonuses of a batch of groups, and count its outcomes.

    The bonuses use the counts from **before** this call: samples of one call never see each other, even if a question
    occurs in several groups.

    Args:
        rewards: (B, n) floating point, finite.
        question_keys: (B,) int64, stable over training (`outcome_rl.question_key`).
        outcome_keys: (B, n) int64 classes of the final answers, 0 for no answer (`outcome_rl.outcome_key`).
        counts: the historical counts; needed by the `ucb` methods.
        rule: how advantages and bonuses are computed; None takes the defaults of `GroupRule`.
        correct: (B, n) bool for the all-correct rule, the history of the questions, and the estimators that ask which
            samples are correct; default `rewards > 0`.
        past: what `counts.read` returned for this batch; None reads it.
        batch: number of batches before this one, for your functions.
        update: whether the batch is added to `counts`; evaluation passes False.
        **settings: fields of `GroupRule` that replace the fields of `rule`.

    Returns:
        `GroupAdvantages(advantages, bonuses, counts)`, in the dtype of the rewards (counts int64), without gradient.
        Samples of a group that the estimator cannot distinguish have advantages of exactly 0: `grpo`, by equal rewards.

    Raises:
        TypeError, ValueError: an argument has the wrong type, dtype, shape, device or range. Rewards that are not
            finite raise on the CPU; on a GPU they make the advantages of their group NaN, because checking them would
            synchronise. So do negative rewards under `maxrl`.
        MemoryError: the table cannot grow.

    A call that raises counts nothing.

    Source: Song, Kempe, Munos, "Outcome-based Exploration for LLM Reasoning", 2025, section 3; normalisation as verl;
    docs/methods.md for the other estimators.
    """
    rule = GroupRule(**settings) if rule is None else replace(rule, **settings) if settings else rule
    _check_columns(rewards, question_keys, outcome_keys, correct)
    _check_counts(counts, rewards, rule)
    counts_last = update and (rule.may_refuse or past is not None)
    with nullcontext() if counts is None else counts.lock:
        correct = rewards > 0 if correct is None else correct
        if counts is not None and past is None:
            past = counts.read(question_keys, outcome_keys, correct, update=update and not counts_last)
        visits, successes, distinct = (None,) * 3 if past is None else past.history.unsqueeze(-1)
        groups = Groups(
            # Half precision is for results: counts beyond 65,504 and probabilities near 1 have no place in it.
            rewards=rewards.detach().to(torch.promote_types(rewards.dtype, torch.float32)),
            correct=correct,
            outcome_keys=outcome_keys,
            counts=None if past is None else past.counts,
            visits=visits,
            successes=successes,
            distinct=distinct,
            batch=batch,
            baseline=rule.baseline,
            no_answer=rule.no_answer,
            scale=rule.scale,
            ddof=rule.ddof,
            eps=rule.eps,
        )
        advantages, bonuses = (part(groups, rule).to(rewards.dtype) for part in (_estimate, _explore))
        check_results(rule, advantages, bonuses)
        result = GroupAdvantages(advantages, bonuses, groups.counts)
        if counts is not None and counts_last:
            counts.observe(question_keys, outcome_keys, correct)
    return result


def _estimate(groups: Groups, rule: GroupRule) -> Tensor:
    """Return the reward part of the advantages."""
    name, advantages_Bn = f"the result of adv_estimator={rule.adv_estimator!r}", rule.estimator.function(groups)
    return check_shape_of(name, advantages_Bn, "rewards", groups.rewards)


def _explore(groups: Groups, rule: GroupRule) -> Tensor:
    """Return the sum over bonuses of `coef * signal`, with its rules for missing answers and all-correct groups."""
    total_Bn = None
    for term in rule.terms:
        signal_Bn = term.bonus.function(groups)
        check_shape_of(f"the result of bonus={rule.bonus!r}", signal_Bn, "outcome_keys", groups.outcome_keys)
        bonus_Bn = signal_Bn.to(groups.rewards.dtype) * term.coef  # a new tensor, so the rest is in place
        if rule.no_answer == "no_bonus" and not term.bonus.scores_no_answer:
            bonus_Bn.masked_fill_(groups.outcome_keys == NO_ANSWER, 0.0)
        if term.zero_when_all_correct:
            bonus_Bn.masked_fill_(groups.correct.all(dim=1, keepdim=True), 0.0)
        total_Bn = bonus_Bn if total_Bn is None else total_Bn.add_(bonus_Bn)
    assert total_Bn is not None
    return total_Bn


def check_results(rule: GroupRule, advantages: Tensor, bonuses: Tensor) -> None:
    """Check that the results of functions that may fail are finite, (N,) or (B, n); those on a GPU are not read.

    Raises:
        ValueError: they are not.
    """
    if rule.may_refuse:
        fix = "Its function must be finite for finite rewards"
        if rule.adv_estimator == "maxrl":
            fix = "maxrl takes no negative rewards; raise yours, or choose another adv_estimator"
        _check_finite(advantages, f"the result of adv_estimator={rule.adv_estimator!r}", fix)
        fix = "Its function must be finite for all counts, also of zero"
        _check_finite(bonuses, f"the result of bonus={rule.bonus!r}", fix)


def _check_columns(rewards: Tensor, question_keys: Tensor, outcome_keys: Tensor, correct: Tensor | None) -> None:
    check_tensor("rewards", rewards, FLOATS)
    check_tensor("question_keys", question_keys, (torch.int64,), rewards.device)
    check_tensor("outcome_keys", outcome_keys, (torch.int64,), rewards.device)
    if rewards.dim() != 2 or rewards.shape[1] == 0:
        raise ValueError(f"rewards must have shape (B, n) with n >= 1 samples per question; got {shape_text(rewards)}")
    check_shape_of("outcome_keys", outcome_keys, "rewards", rewards)
    if question_keys.shape != rewards.shape[:1]:
        raise ValueError(
            f"question_keys must have shape (B,) = ({rewards.shape[0]},), one per group; "
            f"got {shape_text(question_keys)}"
        )
    if correct is not None:
        check_like("correct", correct, (torch.bool,), "rewards", rewards)
    _check_finite(rewards)


def _check_finite(
    values: Tensor, name: str = "rewards", fix: str = "Give a response without a reward 0, or leave out its group"
) -> None:
    if not is_readable(values) or values.isfinite().all():
        return
    *group, sample = (~values.isfinite()).nonzero()[0].tolist()
    place = f"sample {sample} of group {group[0]}" if group else f"response {sample}"
    raise ValueError(f"{name} must be finite; got {values[(*group, sample)]} for {place}. {fix}")


def _check_counts(counts: OutcomeCounts | None, rewards: Tensor, rule: GroupRule) -> None:
    if counts is None:
        needing = f"adv_estimator {rule.adv_estimator!r}" if "history" in rule.estimator.needs else ""
        if any(term.bonus.needs_counts for term in rule.terms):
            needing = f"bonus {rule.bonus!r}"
        if needing:
            raise ValueError(
                f"{needing} needs counts; got None. Make one OutcomeCounts(rule=outcome_rl.OUTCOME_RULE) "
                "for the run and pass it in every step"
            )
    elif not isinstance(counts, OutcomeCounts):
        raise TypeError(
            f"counts must be an OutcomeCounts; got {type(counts).__name__}. Use OutcomeCounts() and keep it"
        )
    elif counts.device != rewards.device:
        raise ValueError(
            f"counts must be on {rewards.device}, like the rewards; got counts on {counts.device}. "
            f"Use OutcomeCounts(device={str(rewards.device)!r}), or move the tensors"
        )
