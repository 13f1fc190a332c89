"""The row kernels on the CPU, in C++ (csrc/row_kernels.h)."""

from typing import Any

import torch
from torch import Tensor

from outcome_rl_kernels.backends import native_library
from outcome_rl_kernels.loss.inputs import LogitRows, RowStatistics


def row_statistics(rows: LogitRows) -> RowStatistics:
    """As in `RowKernels`, for contiguous float32 or bfloat16 logits; in float64."""
    rows, columns_4R = _contiguous(rows), torch.empty(4, len(rows.logits_RV), dtype=torch.float64)
    native_library(release_gil=True).row_statistics(
        *_arguments(rows, None), columns_4R.data_ptr(), torch.get_num_threads()
    )
    return RowStatistics(columns_4R[0], columns_4R[1], columns_4R)


def row_gradients(
    rows: LogitRows,
    statistics: RowStatistics,
    logp_grads_R: Tensor,
    entropy_grads_R: Tensor | None,
    grad_RV: Tensor,
) -> None:
    """As in `RowKernels`, for contiguous tensors."""
    rows, given = _contiguous(rows), (statistics.others_KR, logp_grads_R, entropy_grads_R)
    columns = [None if column is None else column.double().contiguous() for column in given]
    native_library(release_gil=True).row_gradients(
        *_arguments(rows, grad_RV), *map(_pointer, columns), grad_RV.data_ptr(), torch.get_num_threads()
    )


def _contiguous(rows: LogitRows) -> LogitRows:
    """Return the rows with contiguous vectors, which must live as long as the call that gets their addresses."""
    active_R = None if rows.active_R is None else rows.active_R.contiguous()
    return rows._replace(labels_R=rows.labels_R.contiguous(), active_R=active_R)


def _arguments(rows: LogitRows, grad_RV: Tensor | None) -> tuple[Any, ...]:
    logits_RV, labels_R, temperature, active_R = rows
    kind = int(logits_RV.dtype == torch.bfloat16)
    if grad_RV is not None and grad_RV.dtype != logits_RV.dtype:
        kind = 2
    return kind, *map(_pointer, (logits_RV, labels_R, active_R)), *logits_RV.shape, 1 / temperature


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
