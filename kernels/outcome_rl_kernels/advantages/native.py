"""Group advantages on the CPU in one call of C++ (csrc/group_advantages.cpp, which says how it rounds).

Shapes: B groups, n samples.
"""

import ctypes
from typing import cast

import torch
from torch import Tensor

from outcome_rl_kernels.advantages.reference import BONUS_METHODS, GroupSettings
from outcome_rl_kernels.backends import aligned, native_library
from outcome_rl_kernels.counts.api import OutcomeCounts
from outcome_rl_kernels.counts.native import NativeTable

_INT64, _INT32 = ctypes.c_int64, ctypes.c_int32


class _Term(ctypes.Structure):
    _fields_ = (("coef", ctypes.c_double), ("method", _INT32), ("zero_when_all_correct", _INT32))


class _Settings(ctypes.Structure):
    _fields_ = (
        ("terms", ctypes.POINTER(_Term)),
        ("term_count", _INT64),
        ("baseline", ctypes.c_double),
        ("exponent", ctypes.c_double),
        ("eps", ctypes.c_double),
        ("ddof", _INT32),
        ("standardise", _INT32),
        ("no_answer_counts", _INT32),
    )


def native_group_advantages(
    rewards_Bn: Tensor,
    question_keys_B: Tensor,
    outcome_keys_Bn: Tensor,
    correct_Bn: Tensor | None,
    counts: OutcomeCounts | None,
    settings: GroupSettings,
    update: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return advantages, bonuses and, with counts, those before; the arguments are checked and contiguous.

    Raises:
        MemoryError: there is no memory for the table to grow; nothing was counted.
    """
    table = None if counts is None else cast(NativeTable, counts.table)
    rewards_Bn, question_keys_B, outcome_keys_Bn = map(aligned, (rewards_Bn, question_keys_B, outcome_keys_Bn))
    B, n = rewards_Bn.shape
    advantages_Bn, bonuses_Bn = torch.empty_like(rewards_Bn), torch.empty_like(rewards_Bn)
    before_Bn = None if table is None else torch.empty_like(outcome_keys_Bn)
    terms = [
        _Term(coef, BONUS_METHODS.index(method), zeroed)
        for coef, method, zeroed in zip(settings.coefs, settings.methods, settings.zeroed, strict=True)
    ]
    group = _Settings(
        terms=(_Term * len(terms))(*terms),
        term_count=len(terms),
        baseline=settings.baseline,
        exponent=settings.exponent,
        eps=settings.eps,
        ddof=settings.ddof,
        standardise=settings.scale == "std",
        no_answer_counts=settings.no_answer == "own_class",
    )
    done = native_library().group_advantages(
        None if table is None else table.handle,
        update,
        rewards_Bn.dtype == torch.float64,
        rewards_Bn.data_ptr(),
        question_keys_B.data_ptr(),
        outcome_keys_Bn.data_ptr(),
        None if correct_Bn is None else correct_Bn.data_ptr(),
        B,
        n,
        ctypes.byref(group),
        advantages_Bn.data_ptr(),
        bonuses_Bn.data_ptr(),
        None if before_Bn is None else before_Bn.data_ptr(),
    )
    if table is not None:
        table.check(done)
    return advantages_Bn, bonuses_Bn, before_Bn
