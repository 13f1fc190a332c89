"""Products with the kept rows of a head on the CPU, and the sums that are their gradients (csrc/support.cpp)."""

import torch
from torch import Tensor

from outcome_rl_kernels.backends import aligned, native_library


def kept_logits(hidden_NH: Tensor, weight: Tensor, rows_E: Tensor, ids_E: Tensor) -> Tensor:
    """As in `SupportKernels`, for float32 or bfloat16."""
    logits_E = torch.empty(len(ids_E))
    _call("kept_logits", (hidden_NH, weight, rows_E, ids_E), len(ids_E), weight.shape[1], logits_E)
    return logits_E


def segment_sums(table: Tensor, index_E: Tensor, coefficients_E: Tensor, offsets: Tensor) -> Tensor:
    """As in `SupportKernels`, for float32 or bfloat16."""
    sums = table.new_empty(len(offsets) - 1, table.shape[1])
    _call("segment_sums", (table, index_E, coefficients_E, offsets), len(sums), table.shape[1], sums)
    return sums


def _call(name: str, given: tuple[Tensor, ...], length: int, width: int, result: Tensor) -> None:
    tensors = [aligned(tensor) for tensor in given]  # which must live as long as the call that gets their addresses
    getattr(native_library(release_gil=True), name)(
        int(tensors[0].dtype == torch.bfloat16),
        *(tensor.data_ptr() for tensor in tensors),
        length,
        width,
        result.data_ptr(),
        torch.get_num_threads(),
    )
