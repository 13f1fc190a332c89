"""Group advantages with outcome-based exploration: counts, bonuses and normalised rewards in one call."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from outcome_rl_kernels.advantages.estimators import Groups, parse_adv_estimator
from outcome_rl_kernels.advantages.native import native_group_advantages
from outcome_rl_kernels.advantages.reference import (
    BONUS_METHODS,
    REGISTERED_BONUSES,
    CountTime,
    GroupSettings,
    NoAnswerRule,
    Only,
    Scale,
    needs_counts,
    reference_group_advantages,
    restricted,
)
from outcome_rl_kernels.backends import Backend, Choice, Impl, choose
from outcome_rl_kernels.checks import (
    FLOATS,
    check_choice,
    check_like,
    check_number,
    check_shape_of,
    check_tensor,
    shape_text,
)
from outcome_rl_kernels.counts.api import OutcomeCounts

MAX_GROUP_SAMPLES = 256  # one Triton program holds a group in registers


class GroupAdvantages(NamedTuple):
    """Result of `group_advantages`, all (B, n) and without gradient; the policy loss takes `advantages` and
    `bonuses`.
    """

    advantages: Tensor  # reward part
    bonuses: Tensor  # exploration part, times its coefficient
    counts: Tensor | None  # int64, times each outcome was seen before this call; None without a count table


def parse_bonus(bonus: str) -> tuple[str, ...]:
    """Return the methods of `bonus`, such as "ucb_con" or "ucb_con+batch"; of "module:function" the function.

    Raises:
        ValueError: a method is unknown, occurs twice, or "none" is combined with another.
    """
    methods = tuple(part.rpartition(":")[2].strip() for part in bonus.split("+"))
    for method in methods:
        if method not in (*BONUS_METHODS, *REGISTERED_BONUSES):
            known = ", ".join(map(repr, (*BONUS_METHODS, *REGISTERED_BONUSES)))
            raise ValueError(f"bonus must be one of {known} or several joined by '+'; got {bonus!r}")
    if len(set(methods)) != len(methods) or ("none" in methods and len(methods) > 1):
        raise ValueError(f"bonus may name each method once, and 'none' only alone; got {bonus!r}")
    return methods


def group_advantages(
    rewards: Tensor,
    question_keys: Tensor,
    outcome_keys: Tensor,
    counts: OutcomeCounts | None = None,
    *,
    correct: Tensor | None = None,
    logps: Tensor | None = None,
    adv_estimator: str = "grpo",
    bonus: str = "ucb_con",
    coef: float | Sequence[float] = 0.1,
    baseline: float = 0.5,
    exponent: float = 0.5,
    zero_when_all_correct: bool | None = None,
    no_answer: NoAnswerRule = "no_bonus",
    only: Only = "all",
    count: CountTime = "before",
    scale: Scale = "std",
    ddof: int = 1,
    eps: float = 1e-6,
    update: bool = True,
    impl: Impl = "auto",
) -> GroupAdvantages:
    """Normalised rewards and exploration bonuses of a batch of groups, counting its outcomes on the way.

    `A_i = (r_i - mean(r)) / (std(r) + eps)`, or another estimator, and `bonus_i = sum over methods of coef * signal_i`;
    `outcome_rl_kernels.advantages` tabulates the estimators in `estimators` and the signals in `reference`. The counts
    N that the bonuses use are those **before** this call: samples of one call never see each other, also where a
    question occurs in several groups; `count="after"` includes the whole call.

    Args:
        rewards: (B, n) floating point, finite.
        question_keys: (B,) int64, stable over training (`outcome_rl.question_key`).
        outcome_keys: (B, n) int64 classes of the final answers, 0 for no answer (`outcome_rl.outcome_key`).
        counts: the historical counts; needed by the `ucb` methods.
        correct: (B, n) bool for the all-correct rule, `pass_at_k` and `edas`; default `rewards > 0`.
        logps: (B, n) floating point, log-probabilities of the samples for `unlikeliness`, whose authors take the mean
            over tokens.
        adv_estimator: one of `grpo`, `dr_grpo`, `rloo`, `maxrl`, `pass_at_k(k=...)`, `pkpo(k=...)`, `unlikeliness`,
            `majority`, `edas`, or a name from `register_adv_estimator`; numbers in parentheses.
        bonus: one of `none`, `ucb`, `ucb_mean`, `ucb_con`, `batch`, `batch_positive`, a name from `register_bonus`, or
            several joined by "+".
        coef: coefficient c >= 0 of the bonus, or one for each method of a sum, as Python numbers; the paper uses 0.1
            (Llama) and 0.2 (Qwen).
        baseline: b0 of `ucb_con`; the paper uses 1 (easy data) and 0.5 (medium).
        exponent: >= 0, of the counts in the `ucb` methods, `min(1, N^-exponent)`; the paper's is 1/2. A larger one
            forgets an outcome sooner.
        zero_when_all_correct: whether a group whose answers are all correct gets no exploration signal. None follows
            the paper: yes for `ucb_mean` and `ucb_con`, no for the others.
        no_answer: "no_bonus" gives a response without an answer the raw bonus 0; "own_class" treats it like any
            outcome.
        only: responses that get a bonus: "all"; "incorrect" ones, so that none is pushed away from a correct answer;
            or "unsolved", those of groups without a correct response.
        count: "before" or "after" the batch; "after" takes two more passes over the table.
        scale: "std", or "none" to leave out the division of `grpo` and of estimators built on it (Dr. GRPO).
        ddof: of the standard deviation; 1 as in verl and TRL.
        eps: >= 0, added to the standard deviation.
        update: whether the batch is added to `counts`; evaluation passes False.
        impl: "reference" (plain PyTorch and the table's own calls), "native" (one call of C++), "triton" (one launch on
            a GPU), or "auto", the last two where they can run: float32 or float64 rewards, built-in bonuses, counts of
            the same impl and, on a GPU, n up to 256. Estimators other than `grpo` are plain PyTorch in all of them.

    Returns:
        `GroupAdvantages(advantages, bonuses, counts)`, in the dtype of the rewards (counts int64), without gradient. A
        group with equal rewards has advantages of exactly 0.

    Raises:
        TypeError, ValueError: an argument has the wrong type, dtype, shape, device or range, or `impl` cannot run.
            Rewards that are not finite raise on the CPU; on a GPU they make the advantages of their group NaN, because
            checking them would synchronise. So do negative rewards under `maxrl`.
        MemoryError: the table cannot grow. In either case nothing is counted.

    Source: Song, Kempe, Munos, "Outcome-based Exploration for LLM Reasoning", 2025, section 3; normalisation as verl;
    docs/methods.md for the other estimators.
    """
    check_tensor("rewards", rewards, FLOATS)
    check_tensor("question_keys", question_keys, (torch.int64,), rewards.device)
    check_tensor("outcome_keys", outcome_keys, (torch.int64,), rewards.device)
    if rewards.dim() != 2 or rewards.shape[1] == 0:
        raise ValueError(f"rewards must have shape (B, n) with n >= 1 samples per question; got {shape_text(rewards)}")
    check_shape_of("outcome_keys", outcome_keys, "rewards", rewards)
    _check_finite(rewards)
    if question_keys.shape != rewards.shape[:1]:
        raise ValueError(
            f"question_keys must have shape (B,) = ({rewards.shape[0]},), one per group; "
            f"got {shape_text(question_keys)}"
        )
    if correct is not None:
        check_like("correct", correct, (torch.bool,), "rewards", rewards)
    if logps is not None:
        check_like("logps", logps, FLOATS, "rewards", rewards)
    methods = parse_bonus(bonus)
    coefs = _coefficients(coef, methods)
    check_number("baseline", baseline)
    check_number("exponent", exponent, least=0)
    if zero_when_all_correct is not None and not isinstance(zero_when_all_correct, bool):
        raise TypeError(f"zero_when_all_correct must be True, False or None; got {zero_when_all_correct!r}")
    check_choice("no_answer", no_answer, ("no_bonus", "own_class"))
    check_choice("only", only, ("all", "incorrect", "unsolved"))
    check_choice("count", count, ("before", "after"))
    check_choice("scale", scale, ("std", "none"))
    check_choice("ddof", ddof, (0, 1))
    check_number("eps", eps, least=0)
    if count == "after" and not update:
        raise ValueError("count='after' counts the batch before it reads; got update=False. Use count='before'")
    if counts is None and any(map(needs_counts, methods)):
        raise ValueError(
            f"bonus {bonus!r} needs counts; got None. Make one OutcomeCounts(rule=outcome_rl.OUTCOME_RULE) for the run "
            "and pass it in every step"
        )
    if counts is not None and not isinstance(counts, OutcomeCounts):
        raise TypeError(
            f"counts must be an OutcomeCounts; got {type(counts).__name__}. Use OutcomeCounts() and keep it"
        )
    if counts is not None and counts.device != rewards.device:
        raise ValueError(
            f"counts must be on {rewards.device}, like the rewards; got counts on {counts.device}. "
            f"Use OutcomeCounts(device={str(rewards.device)!r}), or move the tensors"
        )
    settings = GroupSettings(methods, coefs, baseline, exponent, zero_when_all_correct, no_answer, scale, ddof, eps)
    estimated = None
    is_correct = rewards > 0 if correct is None else correct
    if adv_estimator != "grpo":
        groups = Groups(rewards.detach(), is_correct, outcome_keys, logps, scale, ddof, eps)
        name = f"the result of adv_estimator={adv_estimator!r}"
        estimated = check_shape_of(
            name, parse_adv_estimator(adv_estimator)[1](groups).to(rewards.dtype), "rewards", rewards
        )
        _check_finite(estimated, name, "maxrl takes no negative rewards")
    arguments = (
        rewards.detach().contiguous(),
        question_keys.contiguous(),
        outcome_keys.contiguous(),
        None if correct is None else correct.contiguous(),
        counts,
        settings,
        update and count == "before",
    )
    chosen = _choose(impl, rewards, counts, methods).impl
    compute = native_group_advantages if chosen == "native" else reference_group_advantages
    if chosen == "triton":
        from outcome_rl_kernels.advantages.triton import triton_group_advantages  # not above: triton is heavy

        compute = triton_group_advantages
    with nullcontext() if counts is None else counts.lock:
        before = counts.observe(question_keys, outcome_keys) if counts is not None and count == "after" else None
        result = GroupAdvantages(*compute(*arguments))
    advantages = result.advantages if estimated is None else estimated
    bonuses = restricted(result.bonuses, is_correct, only)
    return GroupAdvantages(advantages, bonuses, result.counts if before is None else before)


def _check_finite(
    values_Bn: Tensor, name: str = "rewards", fix: str = "Give a response without a reward 0, or leave out its group"
) -> None:
    if values_Bn.device.type != "cpu" or torch.compiler.is_compiling() or values_Bn.isfinite().all():
        return
    group, sample = (~values_Bn.isfinite()).nonzero()[0].tolist()
    raise ValueError(
        f"{name} must be finite; got {values_Bn[group, sample]} for sample {sample} of group {group}. {fix}"
    )


def _choose(impl: Impl, rewards: Tensor, counts: OutcomeCounts | None, methods: Sequence[str] = ()) -> Choice:
    fast: tuple[Backend, ...] = ("native", "triton")
    obstacles: dict[Backend, str] = {}
    if counts is not None:
        obstacles = {name: f"the counts have impl={counts.impl!r}" for name in fast if name != counts.impl}
    if registered := REGISTERED_BONUSES.keys() & methods:
        obstacles |= dict.fromkeys(fast, f"the registered bonus {min(registered)!r} is a Python function")
    if rewards.shape[1] > MAX_GROUP_SAMPLES:
        obstacles["triton"] = f"a group may have at most {MAX_GROUP_SAMPLES} samples, got {rewards.shape[1]}"
    if torch.compiler.is_compiling():
        obstacles = dict.fromkeys(fast, "torch.compile cannot look into it")
    return choose("group_advantages", impl, rewards.device, rewards.dtype, obstacles)


def _coefficients(coef: float | Sequence[float], methods: Sequence[str]) -> tuple[float, ...]:
    coefs = coef if isinstance(coef, Sequence) else [coef] * len(methods)
    if len(coefs) != len(methods):
        raise ValueError(f"coef must be one number or one for each of {list(methods)}; got {len(coefs)} numbers")
    return tuple(check_number("coef", c, least=0) for c in coefs)
