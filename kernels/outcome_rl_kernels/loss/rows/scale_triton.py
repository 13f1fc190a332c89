"""The product of a gradient with a factor on a GPU, which the host does not wait for."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from outcome_rl_kernels.loss.rows.triton import multiprocessors

_BLOCK = 8192  # numbers, 32 a thread
_PROGRAMS = 8  # a multiprocessor


@triton.jit
def _scale_kernel(values_ptr, factor_ptr, count: tl.int64, BLOCK: tl.constexpr):
    factor = tl.load(factor_ptr).to(tl.float32)
    if factor != 1.0:
        for start in range(tl.program_id(0).to(tl.int64) * BLOCK, count, tl.num_programs(0).to(tl.int64) * BLOCK):
            index = start + tl.arange(0, BLOCK)
            values = tl.load(values_ptr + index, mask=index < count)
            tl.store(values_ptr + index, values.to(tl.float32) * factor, mask=index < count)


def scale_(values: Tensor, factor: Tensor) -> None:
    """Multiply contiguous float32, bfloat16 or float16 values by a 0-d factor, which the host does not wait for.

    The product is taken in float32 and rounded once. If the factor is 1, no value is read or written.
    """
    count = values.numel()
    programs = min(triton.cdiv(count, _BLOCK), _PROGRAMS * multiprocessors(values.device))
    if programs > 0:
        with torch.cuda.device_of(values):  # Triton launches on the current device
            _scale_kernel[(programs,)](
                values_ptr=values,
                factor_ptr=factor,
                count=count,
                BLOCK=_BLOCK,
                num_warps=4 if torch.version.hip else 8,
            )
