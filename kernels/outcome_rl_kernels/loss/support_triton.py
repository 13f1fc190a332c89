"""Products with the kept rows of a head on a GPU, and the sums that are their gradients, in Triton (see `support`).

Each program gathers tiles of rows, 16 bytes an access where H allows it. The gradient of a token's row of the head
belongs to the programs of that token, which sum in one order: no atomics, and zeros are written for tokens that no
position kept.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _gather(table_ptr, index, columns, width):
    """Return the tile of a table (rows, width) at rows `index`, zeros where it is negative, in float32."""
    mask = (index >= 0)[:, None] & (columns < width)[None, :]
    return tl.load(table_ptr + index[:, None] * width + columns[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["entries"])
def _kept_logits_kernel(
    hidden_ptr, weight_ptr, rows_ptr, ids_ptr, logits_ptr, entries, width, BLOCK_E: tl.constexpr, BLOCK_H: tl.constexpr
):
    entry = tl.program_id(0).to(tl.int64) * BLOCK_E + tl.arange(0, BLOCK_E)
    ids = tl.load(ids_ptr + entry, mask=entry < entries, other=-1)
    rows = tl.where(ids >= 0, tl.load(rows_ptr + entry, mask=entry < entries, other=-1), -1)
    sums = tl.zeros((BLOCK_E, BLOCK_H), tl.float32)
    for start in range(0, width, BLOCK_H):
        columns = start + tl.arange(0, BLOCK_H)
        sums += _gather(hidden_ptr, rows, columns, width) * _gather(weight_ptr, ids, columns, width)
    tl.store(logits_ptr + entry, tl.sum(sums, axis=1), mask=entry < entries)


@triton.jit
def _segment_sums_kernel(
    table_ptr, index_ptr, coefficients_ptr, offsets_ptr, sums_ptr, width, BLOCK_E: tl.constexpr, BLOCK_H: tl.constexpr
):
    blocks = tl.cdiv(width, BLOCK_H)
    segment = (tl.program_id(0) // blocks).to(tl.int64)
    columns = tl.program_id(0) % blocks * BLOCK_H + tl.arange(0, BLOCK_H)
    end = tl.load(offsets_ptr + segment + 1)
    sums = tl.zeros((BLOCK_E, BLOCK_H), tl.float32)
    for start in range(tl.load(offsets_ptr + segment), end, BLOCK_E):
        entry = start + tl.arange(0, BLOCK_E)
        index = tl.load(index_ptr + entry, mask=entry < end, other=-1)
        coefficients = tl.load(coefficients_ptr + entry, mask=index >= 0, other=0.0)
        sums += coefficients[:, None] * _gather(table_ptr, index, columns, width)
    tl.store(sums_ptr + segment * width + columns, tl.sum(sums, axis=0), mask=columns < width)


def kept_logits(hidden_NH: Tensor, weight: Tensor, rows_E: Tensor, ids_E: Tensor) -> Tensor:
    """As in `SupportKernels`."""
    logits_E = torch.empty(len(ids_E), device=weight.device)
    _launch(
        _kept_logits_kernel,
        triton.cdiv(len(ids_E), 8),
        weight,
        hidden_ptr=hidden_NH,
        weight_ptr=weight,
        rows_ptr=rows_E.contiguous(),
        ids_ptr=ids_E.contiguous(),
        logits_ptr=logits_E,
        entries=len(ids_E),
        BLOCK_E=8,
        BLOCK_H=min(256, triton.next_power_of_2(weight.shape[1])),
    )
    return logits_E


def segment_sums(table: Tensor, index_E: Tensor, coefficients_E: Tensor, offsets: Tensor) -> Tensor:
    """As in `SupportKernels`."""
    width, segments = table.shape[1], len(offsets) - 1
    block = min(1024, triton.next_power_of_2(width))
    sums = table.new_empty(segments, width)
    _launch(
        _segment_sums_kernel,
        segments * triton.cdiv(width, block),
        table,
        table_ptr=table,
        index_ptr=index_E.contiguous(),
        coefficients_ptr=coefficients_E.contiguous(),
        offsets_ptr=offsets.contiguous(),
        sums_ptr=sums,
        BLOCK_E=4,
        BLOCK_H=block,
    )
    return sums


def _launch(kernel: Any, programs: int, table: Tensor, **arguments: Any) -> None:
    if programs > 0:
        with torch.cuda.device_of(table):  # Triton launches on the current device
            kernel[(programs,)](width=table.shape[1], num_warps=2 if torch.version.hip else 4, **arguments)
