"""Products with the kept rows of a head on the CPU, and the sums that are their gradients (csrc/support.cpp)."""

import torch
from torch import Tensor

from outcome_rl_kernels.backends import aligned, native_library


def kept_logits(hidden_NH: Tensor, weight: Tensor, rows_E: Tensor, ids_E: Tensor) -> Tensor:
    """As in `SupportKernels`, for float32 or bfloat16."""
    logits_E = torch.empty(len(ids_E))
    # Aligned tensors must live as long as the call that gets their addresses.
    tensors = [aligned(tensor) for tensor in (hidden_NH, weight, rows_E, ids_E)]
    native_library(release_gil=True).kept_logits(
        int(weight.dtype == torch.bfloat16),
        *(tensor.data_ptr() for tensor in tensors),
        len(ids_E),
        weight.shape[1],
        logits_E.data_ptr(),
        torch.get_num_threads(),
    )
    return logits_E


def segment_sums(table: Tensor, index_E: Tensor, coefficients_E: Tensor, offsets: Tensor) -> Tensor:
    """As in `SupportKernels`, for float32 or bfloat16."""
    sums = table.new_empty(len(offsets) - 1, table.shape[1])
    tensors = [aligned(tensor) for tensor in (table, index_E, coefficients_E, offsets)]
    native_library(release_gil=True).segment_sums(
        int(table.dtype == torch.bfloat16),
        *(tensor.data_ptr() for tensor in tensors),
        *sums.shape,
        sums.data_ptr(),
        torch.get_num_threads(),
    )
    return sums
