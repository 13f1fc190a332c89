"""The row kernels on the CPU, in C++ (csrc/row_kernels.cpp)."""

from typing import Any

import torch
from torch import Tensor

from outcome_rl_kernels.backends import aligned, call_native
from outcome_rl_kernels.loss.types import LogitRows, RowStatistics

default_loss_rows = None


def row_statistics(rows: LogitRows) -> RowStatistics:
    """As in `RowKernels`, for float32 or bfloat16 logits; in float64.

    Their own columns are these two, maxima of the logits, and log-sums over temperature above them.
    """
    columns_4R = torch.empty(4, len(rows.logits_RV), dtype=torch.float64, device="cpu")
    call_native("row_statistics", *_arguments(rows, None), columns_4R, torch.get_num_threads())
    return RowStatistics(columns_4R[0], columns_4R[1], columns_4R)


def log_sums(statistics: RowStatistics, temperature: float) -> Tensor:
    """As in `RowKernels`."""
    columns_4R: Tensor = statistics.own
    return columns_4R[2] / temperature + columns_4R[3]


def row_gradients(
    rows: LogitRows,
    statistics: RowStatistics,
    logp_grads_R: Tensor,
    entropy_grads_R: Tensor | None,
    grad_RV: Tensor,
) -> None:
    """As in `RowKernels`."""
    to_RV, given = aligned(grad_RV), (statistics.own, logp_grads_R, entropy_grads_R)
    columns = (None if column is None else column.double() for column in given)
    call_native("row_gradients", *_arguments(rows, grad_RV), *columns, to_RV, torch.get_num_threads())
    if to_RV is not grad_RV:
        grad_RV.copy_(to_RV)


def _arguments(rows: LogitRows, grad_RV: Tensor | None) -> tuple[Any, ...]:
    logits_RV, labels_R, temperature, active_R, _ = rows
    kind = int(logits_RV.dtype == torch.bfloat16)
    if grad_RV is not None and grad_RV.dtype != logits_RV.dtype:
        kind = 2
    return kind, logits_RV, labels_R, active_R, *logits_RV.shape, 1 / temperature


def divergence_rows(
    rows: LogitRows,
    scales_4R: Tensor,
    teacher_temperature: float,
    kind: int,
    mixture: float,
    sums_2R: Tensor | None = None,
    factors_R: Tensor | None = None,
    grad_RV: Tensor | None = None,
    *,
    masses: bool = False,
) -> Tensor:
    """Return the divergence of each row and X, (2, R); write the gradients of the divergences times factors, if given.

    csrc/divergence.cpp has the formulas.

    Args:
        scales_4R: float32: log p of a student's logit is `(logit - anchor) / temperature - rest`; both, then those of
            the teacher.
        kind, mixture: the place of the divergence in `divergence.KINDS`, and b.
        sums_2R: the result, where it is known, over all shards of a vocabulary.
        grad_RV: contiguous and aligned, as rooms of `LogitChunks` are.
        masses: write log((p + q) / 2) - 0.04 over the teacher's logits.
    """
    logits_kind, logits_RV, _, active_R, *shape, inverse_temperature = _arguments(rows, grad_RV)
    has_sums = sums_2R is not None
    if sums_2R is None:
        sums_2R = torch.empty(2, len(logits_RV), dtype=torch.float64, device="cpu")
    call_native(
        "divergence_rows",
        *(logits_kind, logits_RV, rows.teacher_RV, active_R, *shape),
        *(inverse_temperature, 1 / teacher_temperature, scales_4R, kind, mixture, int(has_sums), sums_2R),
        *(None if factors_R is None else factors_R.double(), grad_RV, int(masses), torch.get_num_threads()),
    )
    return sums_2R
