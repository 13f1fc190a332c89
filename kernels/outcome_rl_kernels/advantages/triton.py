"""Group advantages in one launch on a GPU: lookup, bonuses, advantages and the update of the counts.

One program per group. It finds or claims the slots of its samples (phase 1 of `counts.triton_kernels`, which has the
protocol), computes their bonuses and advantages (formulas: `reference`), and announces itself. The last
program to arrive knows that all are past phase 1 and commits the batch (phase 2): a question may therefore occur in
several groups, and still all of them see the counts before the launch. Nobody waits. A batch of more than
`_COMMIT_HERE` samples, too long for one program, is committed by a second launch.

Every sample probes for itself: equal outcomes of a group end at the same slot, with the same count, hence the same bits
of the bonus. Sums are taken in float64; the rest of the bonuses is computed in the dtype of the rewards, with
separate multiplications and additions as the reference has them, and advantages in float64, rounded once.

Shapes: B groups, n samples.
"""

from typing import cast

import torch
import triton
import triton.language as tl
from torch import Tensor

from outcome_rl_kernels.advantages.reference import BONUS_METHODS, NO_ANSWER, GroupSettings
from outcome_rl_kernels.counts.api import OutcomeCounts
from outcome_rl_kernels.counts.triton import TritonTable, limit_of, shift_of
from outcome_rl_kernels.counts.triton_kernels import ARRIVALS, commit, find_or_claim

_COMMIT_HERE = 2**14
_THREADS = 128  # a few samples each in either phase
_MAX_TERMS = 5  # each method but "none" once

_NONE = tl.constexpr(BONUS_METHODS.index("none"))
_UCB = tl.constexpr(BONUS_METHODS.index("ucb"))
_UCB_MEAN = tl.constexpr(BONUS_METHODS.index("ucb_mean"))
_UCB_CON = tl.constexpr(BONUS_METHODS.index("ucb_con"))
_BATCH = tl.constexpr(BONUS_METHODS.index("batch"))
_BATCH_POSITIVE = tl.constexpr(BONUS_METHODS.index("batch_positive"))
_NO_ANSWER = tl.constexpr(NO_ANSWER)


@triton.jit
def _in_dtype(number, dtype: tl.constexpr):
    """Return a float64 argument, a plain number under the interpreter, as a scalar of `dtype`."""
    return tl.full([], number, tl.float64).to(dtype)


@triton.jit
def _reward_advantages(reward, valid, n: tl.constexpr, eps, STANDARDISE: tl.constexpr, DEGREES: tl.constexpr):
    first = tl.sum(tl.where(tl.arange(0, reward.shape[0]) == 0, reward, 0.0), 0)
    unequal = tl.sum((valid & (reward != first)).to(tl.int32), 0) > 0  # NaN is unequal to itself
    wide = reward.to(tl.float64)
    centred = wide - tl.sum(tl.where(valid, wide, 0.0), 0) / n
    if STANDARDISE:
        squares = tl.sum(tl.where(valid, centred * centred, 0.0), 0)
        centred = centred / (tl.sqrt(squares / DEGREES) + eps)
    return tl.where(unequal, centred.to(reward.dtype), 0.0)


@triton.jit
def _multiplicity(outcome, outcomes_ptr, n: tl.constexpr):
    """How many samples of the group, whose outcomes begin at the pointer, have each sample's outcome."""
    total = tl.zeros_like(outcome)
    for other in range(n):
        total += (outcome == tl.load(outcomes_ptr + other)).to(tl.int64)
    return total


# Correctly rounded, as the plain operations are for float64 only.
@triton.jit
def _divide(x, divisor):
    return tl.div_rn(x, divisor) if x.dtype == tl.float32 else x / divisor


@triton.jit
def _sqrt(x):
    return tl.sqrt_rn(x) if x.dtype == tl.float32 else tl.sqrt(x)


@triton.jit
def _historical_bonus(before, earns_bonus, exponent, ROOT: tl.constexpr, dtype: tl.constexpr):
    seen = tl.maximum(before, 1)
    if ROOT:
        bonus = _divide(tl.full(seen.shape, 1.0, dtype), _sqrt(seen.to(dtype)))
    else:
        bonus = tl.exp2(-exponent * tl.log2(seen.to(tl.float64))).to(dtype)
    return tl.where(earns_bonus, bonus, 0.0)


@triton.jit
def _signal(METHOD: tl.constexpr, outcome, historical, earns_bonus, outcomes_ptr, baseline, n: tl.constexpr):
    """Return the exploration signal of one method, before its coefficient and the all-correct rule."""
    dtype: tl.constexpr = historical.dtype
    if METHOD == _NONE:
        signal = tl.zeros_like(historical)
    elif METHOD == _UCB:
        signal = historical
    elif METHOD == _UCB_CON:
        signal = historical - _in_dtype(baseline, dtype)
    elif METHOD == _UCB_MEAN:
        others = tl.sum(historical.to(tl.float64), 0).to(dtype) - historical
        others_mean = _divide(others, tl.full(others.shape, n - 1, dtype)) if n > 1 else historical
        signal = historical - others_mean
    elif METHOD == _BATCH:
        signal = _divide((1 - _multiplicity(outcome, outcomes_ptr, n)).to(dtype), tl.full(outcome.shape, n, dtype))
    else:
        tl.static_assert(METHOD == _BATCH_POSITIVE)
        signal = (earns_bonus & (_multiplicity(outcome, outcomes_ptr, n) == 1)).to(dtype)
    return signal


@triton.jit(do_not_specialize=["groups", "slot_count", "shift", "limit"])
def _group_advantages_kernel(
    rewards_ptr,
    questions_ptr,
    outcomes_ptr,
    correct_ptr,  # None: where the reward is positive
    advantages_ptr,
    bonuses_ptr,
    before_ptr,
    slots_ptr,  # None: no counts
    state_ptr,
    places_ptr,  # None: only look
    slot_count: tl.int64,
    shift: tl.int64,
    limit: tl.int64,
    groups: tl.int64,
    baseline: tl.float64,
    exponent: tl.float64,
    eps: tl.float64,
    coef_0: tl.float64,
    coef_1: tl.float64,
    coef_2: tl.float64,
    coef_3: tl.float64,
    coef_4: tl.float64,
    METHODS: tl.constexpr,  # numbers in BONUS_METHODS, in the order of the coefficients
    ZEROED: tl.constexpr,  # for each, whether a group whose answers are all correct gets none
    ROOT: tl.constexpr,  # the exponent is 1/2
    NO_ANSWER_COUNTS: tl.constexpr,
    STANDARDISE: tl.constexpr,
    DEGREES: tl.constexpr,
    COMMIT: tl.constexpr,
    SAMPLES: tl.constexpr,
    BLOCK_SAMPLES: tl.constexpr,
    BLOCK_COMMIT: tl.constexpr,
):
    group = tl.program_id(0).to(tl.int64)
    sample = tl.arange(0, BLOCK_SAMPLES)
    valid = sample < SAMPLES
    row = group * SAMPLES + sample
    outcome = tl.load(outcomes_ptr + row, mask=valid, other=0)
    before = tl.zeros_like(outcome)
    if slots_ptr is not None:
        before = find_or_claim(
            slots_ptr,
            state_ptr,
            questions_ptr,
            outcomes_ptr,
            before_ptr,
            places_ptr,
            row,
            valid,
            groups * SAMPLES,
            slot_count,
            shift,
            limit,
            SAMPLES,
        )

    reward = tl.load(rewards_ptr + row, mask=valid, other=0.0)
    dtype: tl.constexpr = reward.dtype
    advantage = _reward_advantages(reward, valid, SAMPLES, eps, STANDARDISE, DEGREES)
    tl.store(advantages_ptr + row, advantage, mask=valid)

    if correct_ptr is not None:
        wrong = valid & (tl.load(correct_ptr + row, mask=valid, other=1) == 0)
    else:
        wrong = valid & ~(reward > 0)
    all_correct = tl.sum(wrong.to(tl.int32), 0) == 0
    coefs = (coef_0, coef_1, coef_2, coef_3, coef_4)
    bonus = tl.zeros_like(reward)
    earns_bonus = valid & ((outcome != _NO_ANSWER) | NO_ANSWER_COUNTS)
    historical = _historical_bonus(before, earns_bonus, exponent, ROOT, dtype)
    for term in tl.static_range(len(METHODS)):
        outcomes_of_group_ptr = outcomes_ptr + group * SAMPLES
        signal = _signal(METHODS[term], outcome, historical, earns_bonus, outcomes_of_group_ptr, baseline, SAMPLES)
        if ZEROED[term]:
            signal = tl.where(all_correct, 0.0, signal)
        bonus += _in_dtype(coefs[term], dtype) * signal
    tl.store(bonuses_ptr + row, bonus, mask=valid)

    if COMMIT:
        tl.debug_barrier()  # all of this program's claims and places are written before it arrives
        if tl.atomic_add(state_ptr + ARRIVALS, 1, sem="acq_rel") == groups - 1:
            rows = groups * SAMPLES
            for start in range(0, rows, BLOCK_COMMIT):
                late_row = start + tl.arange(0, BLOCK_COMMIT).to(tl.int64)
                commit(
                    slots_ptr,
                    state_ptr,
                    questions_ptr,
                    outcomes_ptr,
                    places_ptr,
                    None,
                    late_row,
                    late_row < rows,
                    slot_count,
                    SAMPLES,
                    PENDING=True,
                )
            tl.store(state_ptr + ARRIVALS, 0)


def triton_group_advantages(
    rewards_Bn: Tensor,
    question_keys_B: Tensor,
    outcome_keys_Bn: Tensor,
    correct_Bn: Tensor | None,
    counts: OutcomeCounts | None,
    settings: GroupSettings,
    update: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return advantages, bonuses and, with counts, those before; the arguments are checked and contiguous."""
    table = None if counts is None else cast(TritonTable, counts.table)
    B, n = rewards_Bn.shape
    rows = B * n
    advantages_Bn, bonuses_Bn = torch.empty_like(rewards_Bn), torch.empty_like(rewards_Bn)
    before_Bn = None if table is None else torch.empty_like(outcome_keys_Bn)
    if rows == 0:
        return advantages_Bn, bonuses_Bn, before_Bn
    places_Bn = None
    if table is not None and update:
        table.reserve(rows, pending=True)
        places_Bn = torch.empty_like(outcome_keys_Bn)
    slot_count = 0 if table is None else table.slot_count
    coefs = [float(coef) for coef in settings.coefs] + [0.0] * (_MAX_TERMS - len(settings.coefs))
    with torch.cuda.device_of(rewards_Bn):
        _group_advantages_kernel[(B,)](
            rewards_ptr=rewards_Bn,
            questions_ptr=question_keys_B,
            outcomes_ptr=outcome_keys_Bn,
            correct_ptr=correct_Bn,
            advantages_ptr=advantages_Bn,
            bonuses_ptr=bonuses_Bn,
            before_ptr=before_Bn,
            slots_ptr=None if table is None else table.slots,
            state_ptr=None if table is None else table.state,
            places_ptr=places_Bn,
            slot_count=slot_count,
            shift=shift_of(slot_count),
            limit=limit_of(slot_count),
            groups=B,
            baseline=float(settings.baseline),
            exponent=float(settings.exponent),
            eps=float(settings.eps),
            coef_0=coefs[0],
            coef_1=coefs[1],
            coef_2=coefs[2],
            coef_3=coefs[3],
            coef_4=coefs[4],
            METHODS=tuple(map(BONUS_METHODS.index, settings.methods)),
            ZEROED=settings.zeroed,
            ROOT=settings.exponent == 0.5,
            NO_ANSWER_COUNTS=settings.no_answer == "own_class",
            STANDARDISE=settings.scale == "std",
            DEGREES=max(n - settings.ddof, 1),
            COMMIT=places_Bn is not None and rows <= _COMMIT_HERE,
            SAMPLES=n,
            BLOCK_SAMPLES=triton.next_power_of_2(max(n, _THREADS)),
            BLOCK_COMMIT=8 * _THREADS,
            num_warps=_THREADS // 32,
            enable_fp_fusion=False,
        )
    if table is not None and places_Bn is not None and rows > _COMMIT_HERE:
        table.commit(question_keys_B, outcome_keys_Bn, places_Bn, None, pending=True)
    return advantages_Bn, bonuses_Bn, before_Bn
