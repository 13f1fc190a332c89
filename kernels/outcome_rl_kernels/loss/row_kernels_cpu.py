"""The row kernels on the CPU, in C++ (csrc/row_kernels.cpp)."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from outcome_rl_kernels.backends import aligned, native_library
from outcome_rl_kernels.loss.types import LogitRows

default_loss_rows = None


class CpuStatistics(NamedTuple):
    """Rows of the library: log-probabilities, entropies, maxima of the logits, log-sums over temperature above them."""

    columns_4R: Tensor  # float64

    @property
    def logps_R(self) -> Tensor:
        return self.columns_4R[0]

    @property
    def entropies_R(self) -> Tensor:
        return self.columns_4R[1]


def row_statistics(rows: LogitRows) -> CpuStatistics:
    """As in `RowKernels`, for float32 or bfloat16 logits; in float64."""
    rows = _aligned(rows)
    columns_4R = torch.empty(4, len(rows.logits_RV), dtype=torch.float64, device="cpu")
    native_library(release_gil=True).row_statistics(
        *_arguments(rows, None), columns_4R.data_ptr(), torch.get_num_threads()
    )
    return CpuStatistics(columns_4R)


def log_sums(statistics: CpuStatistics, temperature: float) -> Tensor:
    """As in `RowKernels`."""
    return statistics.columns_4R[2] / temperature + statistics.columns_4R[3]


def row_gradients(
    rows: LogitRows,
    statistics: CpuStatistics,
    logp_grads_R: Tensor,
    entropy_grads_R: Tensor | None,
    grad_RV: Tensor,
) -> None:
    """As in `RowKernels`."""
    rows, to_RV, given = _aligned(rows), aligned(grad_RV), (statistics.columns_4R, logp_grads_R, entropy_grads_R)
    columns = [None if column is None else aligned(column.double()) for column in given]
    native_library(release_gil=True).row_gradients(
        *_arguments(rows, grad_RV), *map(_pointer, columns), to_RV.data_ptr(), torch.get_num_threads()
    )
    if to_RV is not grad_RV:
        grad_RV.copy_(to_RV)


def _aligned(rows: LogitRows) -> LogitRows:
    """Return the rows with aligned tensors, which must live as long as the call that gets their addresses."""
    active_R = None if rows.active_R is None else rows.active_R.contiguous()
    return rows._replace(logits_RV=aligned(rows.logits_RV), labels_R=aligned(rows.labels_R), active_R=active_R)


def _arguments(rows: LogitRows, grad_RV: Tensor | None) -> tuple[Any, ...]:
    logits_RV, labels_R, temperature, active_R = rows
    kind = int(logits_RV.dtype == torch.bfloat16)
    if grad_RV is not None and grad_RV.dtype != logits_RV.dtype:
        kind = 2
    return kind, *map(_pointer, (logits_RV, labels_R, active_R)), *logits_RV.shape, 1 / temperature


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
