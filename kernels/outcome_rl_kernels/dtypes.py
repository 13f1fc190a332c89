"""The data type for weights and products on a device: bfloat16 where it is fast, float32 elsewhere.

On a CPU without bfloat16 instructions (x86-64 without AVX-512-BF16 and AMX: AMD before Zen 4, Intel's processors for
laptops) PyTorch is 5 to 200 times slower with bfloat16 matrices than with float32 ones.
"""

from functools import cache
from typing import NamedTuple

import torch


class Bfloat16(NamedTuple):
    """Whether a device multiplies bfloat16 faster than float32, how that is known, and whether a CPU takes tiles."""

    is_fast: bool
    reason: str
    in_tiles: bool = False


def preferred_dtype(device: torch.device) -> tuple[torch.dtype, str]:
    """Return the data type that a model should have on a device, and the reason."""
    found = bfloat16_products(device.type)
    return (torch.bfloat16 if found.is_fast else torch.float32), found.reason


@cache
def bfloat16_products(device_type: str) -> Bfloat16:
    """Return whether bfloat16 products are fast on `"cpu"`, `"cuda"` or another type of device."""
    if device_type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
        return Bfloat16(fast, f"the GPU has {'' if fast else 'no '}bfloat16 products")
    if device_type != "cpu":
        return Bfloat16(False, f"bfloat16 is not known to be fast on {device_type}")
    # oneDNN, which multiplies for PyTorch, can be limited to fewer instructions (ONEDNN_MAX_CPU_ISA).
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return Bfloat16(False, "PyTorch has no fast bfloat16 products on this processor")
    names = {"AVX-512-BF16": torch.cpu._is_avx512_bf16_supported(), "AMX": torch.cpu._is_amx_tile_supported()}
    there = [name for name, supported in names.items() if supported]
    if not there:
        return Bfloat16(False, "the processor has neither AVX-512-BF16 nor AMX")
    return Bfloat16(True, f"the processor has {' and '.join(there)}", in_tiles="AMX" in there)
