"""Supports on the CPU: products with kept rows of a head, and sums of gradients (csrc/support.cpp)."""

from math import prod

import numpy as np
import torch
from torch import Tensor

from outcome_rl_kernels.backends import call_native


def kept_logits(hidden_NH: Tensor, weight: Tensor, rows_E: Tensor, ids_E: Tensor) -> Tensor:
    """As in `SupportKernels`, for float32 or bfloat16."""
    logits_E = torch.empty(len(ids_E), dtype=torch.float32, device="cpu")
    kind = int(weight.dtype == torch.bfloat16)
    given = kind, hidden_NH, weight, rows_E, ids_E, len(ids_E), weight.shape[1]
    call_native("kept_logits", *given, logits_E, torch.get_num_threads())
    return logits_E


def segment_sums(table: Tensor, index_E: Tensor, coefficients_E: Tensor, offsets: Tensor) -> Tensor:
    """As in `SupportKernels`, for float32 or bfloat16."""
    sums = _zeros((len(offsets) - 1, table.shape[1]), table.dtype)
    kind = int(table.dtype == torch.bfloat16)
    given = kind, table, index_E, coefficients_E, offsets, len(sums), table.shape[1]
    call_native("segment_sums", *given, sums, torch.get_num_threads())
    return sums


def _zeros(shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """Return zeros that the system maps page by page as they are touched; PyTorch's zeros are written at once."""
    if prod(shape) == 0:  # such an array has no strides that a view accepts
        return torch.zeros(shape, dtype=dtype, device="cpu")
    return torch.from_numpy(np.zeros(prod(shape) * dtype.itemsize, np.uint8)).view(dtype).view(shape)
