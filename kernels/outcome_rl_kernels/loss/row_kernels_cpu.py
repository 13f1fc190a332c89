"""The row passes of `policy_rows` on the CPU, in C++ (csrc/policy_rows.h, csrc/logit_rows.h)."""

import ctypes
import math
from functools import cache
from typing import get_args

import torch
from torch import Tensor

from outcome_rl_kernels.loss.reference import AnswerMaskMode, KLPenalty, LossSettings
from outcome_rl_kernels.loss.row_kernels import PolicyTokens, RowTerms
from outcome_rl_kernels.native import native_library

_POINTER, _INT64, _INT32, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_float
_INPUT = (_INT32, _POINTER, _POINTER, _INT64, _INT64, _FLOAT)


class _Settings(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_double) for name in ("beta", "epsilon_low", "epsilon_high", "delta", "entropy_coef")),
        *((name, ctypes.c_double) for name in ("log_ratio_clamp", "kl_clamp")),
        *((name, _INT32) for name in ("answer_mask_mode", "kl_penalty")),
    )


_TOKEN_COLUMNS = tuple(name for name in PolicyTokens._fields if name != "labels_R")


class _Tokens(ctypes.Structure):
    _fields_ = tuple((name, _POINTER) for name in _TOKEN_COLUMNS)


def policy_rows(logits_RV: Tensor, tokens: PolicyTokens, settings: LossSettings, grad_RV: Tensor | None) -> Tensor:
    """The terms of `RowTerms`, (7, R), and the gradient of the sum of the losses by the logits.

    Args:
        logits_RV: contiguous float32 or bfloat16.
        grad_RV: where the gradient goes: the logits themselves, or another contiguous tensor of their dtype or, for
            float32 logits, of bfloat16. None: no gradient.
    """
    tokens = tokens.map(Tensor.contiguous)
    terms_7R = torch.empty(len(RowTerms._fields), len(logits_RV))
    columns = _Tokens(*(_pointer(getattr(tokens, name)) for name in _TOKEN_COLUMNS))
    _library().policy_rows(
        *_input(logits_RV, tokens.labels_R, settings.temperature, grad_RV),
        ctypes.byref(columns),
        ctypes.byref(_settings(settings)),
        terms_7R.data_ptr(),
        _pointer(grad_RV),
        torch.get_num_threads(),
    )
    return terms_7R


def logprob_rows(logits_RV: Tensor, labels_R: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the labels and entropies, float32 (R,), of contiguous float32 or bfloat16 rows."""
    labels_R = labels_R.contiguous()
    logps_R, entropies_R = torch.empty(2, len(labels_R))
    _library().logprob_rows(
        *_input(logits_RV, labels_R, temperature, None),
        logps_R.data_ptr(),
        entropies_R.data_ptr(),
        torch.get_num_threads(),
    )
    return logps_R, entropies_R


def logprob_rows_backward(
    logits_RV: Tensor,
    labels_R: Tensor,
    temperature: float,
    logp_grads_R: Tensor,
    entropy_grads_R: Tensor | None,
    grad_RV: Tensor,
) -> None:
    """Writes to `grad_RV` the gradient, by the logits, of a function of their log-probabilities and entropies.

    Args:
        logp_grads_R, entropy_grads_R: float32 derivatives of that function; None is zero.
        grad_RV: as for `policy_rows`.
    """
    labels_R, logp_grads_R = labels_R.contiguous(), logp_grads_R.contiguous()
    entropy_grads_R = None if entropy_grads_R is None else entropy_grads_R.contiguous()
    _library().logprob_rows_backward(
        *_input(logits_RV, labels_R, temperature, grad_RV),
        logp_grads_R.data_ptr(),
        _pointer(entropy_grads_R),
        grad_RV.data_ptr(),
        torch.get_num_threads(),
    )


def _input(logits_RV: Tensor, labels_R: Tensor, temperature: float, grad_RV: Tensor | None) -> tuple[int | float, ...]:
    rows, vocabulary = logits_RV.shape
    kind = int(logits_RV.dtype == torch.bfloat16)
    if grad_RV is not None and grad_RV.dtype != logits_RV.dtype:
        kind = 2
    return kind, logits_RV.data_ptr(), labels_R.data_ptr(), rows, vocabulary, 1 / temperature


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _settings(settings: LossSettings) -> _Settings:
    def bound(value: float | None) -> float:
        return math.inf if value is None else value

    return _Settings(
        beta=settings.beta,
        epsilon_low=settings.epsilon_low,
        epsilon_high=settings.epsilon_high,
        delta=bound(settings.delta),
        entropy_coef=settings.entropy_coef,
        log_ratio_clamp=bound(settings.log_ratio_clamp),
        kl_clamp=bound(settings.kl_clamp),
        answer_mask_mode=get_args(AnswerMaskMode).index(settings.answer_mask_mode),
        kl_penalty=get_args(KLPenalty).index(settings.kl_penalty),
    )


@cache
def _library() -> ctypes.CDLL:
    """The library once more, so that these calls, unlike those of the count table, let other threads run meanwhile."""
    library = ctypes.CDLL(native_library()._name)
    for name, arguments in (
        ("policy_rows", (*_INPUT, *[_POINTER] * 4, _INT32)),
        ("logprob_rows", (*_INPUT, *[_POINTER] * 2, _INT32)),
        ("logprob_rows_backward", (*_INPUT, *[_POINTER] * 3, _INT32)),
    ):
        getattr(library, name).argtypes = arguments
        getattr(library, name).restype = None
    return library
