"""Passes over rows of logits in C++ (csrc/logit_rows.h): statistics of each row, and its gradient written over it.

Shapes: R rows, V vocabulary.
"""

import ctypes
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from outcome_rl_kernels.native import native_library

LOGIT_DTYPES = (torch.float32, torch.bfloat16)

_POINTER, _INT64, _INT32, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_float
_INPUT = (_INT32, _POINTER, _POINTER, _INT64, _INT64, _FLOAT)


class RowStatistics(NamedTuple):
    """What is known of each row of `logits / temperature`, float32 (R,); maximum and log_sum add up to the
    log-sum-exp."""

    maxima_R: Tensor
    log_sums_R: Tensor
    logps_R: Tensor
    entropies_R: Tensor


def row_statistics(logits_RV: Tensor, labels_R: Tensor, temperature: float) -> RowStatistics:
    """Statistics of `softmax(logits / temperature)` of contiguous float32 or bfloat16 rows on the CPU."""
    labels_R = labels_R.contiguous()
    statistics = RowStatistics(*(torch.empty(len(labels_R), dtype=torch.float32) for _ in RowStatistics._fields))
    _library().logit_rows_statistics(
        *_input(logits_RV, labels_R, temperature),
        *(column.data_ptr() for column in statistics),
        torch.get_num_threads(),
    )
    return statistics


def write_row_gradients(
    logits_RV: Tensor,
    labels_R: Tensor,
    temperature: float,
    statistics: RowStatistics,
    logp_grads_R: Tensor,
    entropy_grads_R: Tensor | None,
) -> None:
    """Overwrite the logits, contiguous, with the gradient of a function of their rows' log-probabilities and entropies.

    Args:
        logp_grads_R, entropy_grads_R: float32 derivatives of that function; None is zero.
    """
    labels_R, logp_grads_R = labels_R.contiguous(), logp_grads_R.contiguous()
    entropy_grads_R = None if entropy_grads_R is None else entropy_grads_R.contiguous()
    _library().logit_rows_gradients(
        *_input(logits_RV, labels_R, temperature),
        *(column.data_ptr() for column in statistics),
        logp_grads_R.data_ptr(),
        None if entropy_grads_R is None else entropy_grads_R.data_ptr(),
        torch.get_num_threads(),
    )


def _input(logits_RV: Tensor, labels_R: Tensor, temperature: float) -> tuple[int | float, ...]:
    rows, vocabulary = logits_RV.shape
    is_bfloat16 = logits_RV.dtype == torch.bfloat16
    return is_bfloat16, logits_RV.data_ptr(), labels_R.data_ptr(), rows, vocabulary, 1 / temperature


@cache
def _library() -> ctypes.CDLL:
    """The library once more, so that these calls, unlike those of the count table, let other threads run meanwhile."""
    library = ctypes.CDLL(native_library()._name)
    for name, arguments in (
        ("logit_rows_statistics", (*_INPUT, *[_POINTER] * 4, _INT32)),
        ("logit_rows_gradients", (*_INPUT, *[_POINTER] * 6, _INT32)),
    ):
        getattr(library, name).argtypes = arguments
        getattr(library, name).restype = None
    return library
