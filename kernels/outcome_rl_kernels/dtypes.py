"""The data type for weights and products on a device: bfloat16 where it is fast, float32 elsewhere.

On a CPU without bfloat16 instructions (x86-64 without AVX-512-BF16 and AMX: AMD before Zen 4, Intel's processors for
laptops) PyTorch is 5 to 200 times slower with bfloat16 matrices than with float32 ones.
"""

import platform
import time
from functools import cache
from typing import NamedTuple

import torch

# Share of float32's time below which a timed bfloat16 product counts as fast: a smaller gain is not worth the rounding.
WORTHWHILE = 0.8


class Bfloat16(NamedTuple):
    """Whether a device multiplies bfloat16 faster than float32, and how that is known."""

    is_fast: bool
    reason: str


def preferred_dtype(device: torch.device) -> tuple[torch.dtype, str]:
    """Return the data type that a model should have on a device, and the reason."""
    found = bfloat16_products(device.type)
    return (torch.bfloat16 if found.is_fast else torch.float32), found.reason


@cache
def bfloat16_products(device_type: str) -> Bfloat16:
    """Return whether bfloat16 products are fast on `"cpu"`, `"cuda"` or another type of device; decided once.

    The capability of the device decides. If a processor does not report it, products of a millisecond are timed.
    """
    if device_type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
        return Bfloat16(fast, f"the GPU has {'' if fast else 'no '}bfloat16 products")
    if device_type != "cpu":
        return Bfloat16(False, f"bfloat16 is not known to be fast on {device_type}")
    if platform.machine().lower() in ("x86_64", "amd64"):
        return _x86_products()
    ratio = bfloat16_time()
    return Bfloat16(ratio <= WORTHWHILE, f"bfloat16 products take {ratio:.2g} times as long as float32's here")


def _x86_products() -> Bfloat16:
    # oneDNN, which multiplies for PyTorch, can be limited to fewer instructions (ONEDNN_MAX_CPU_ISA).
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return Bfloat16(False, "PyTorch has no fast bfloat16 products on this processor")
    names = {"AVX-512-BF16": torch.cpu._is_avx512_bf16_supported(), "AMX": torch.cpu._is_amx_tile_supported()}
    there = [name for name, supported in names.items() if supported]
    if not there:
        return Bfloat16(False, "the processor has neither AVX-512-BF16 nor AMX")
    return Bfloat16(True, f"the processor has {' and '.join(there)}")


@cache
def bfloat16_time() -> float:
    """Return the time of bfloat16 products on the CPU as a multiple of float32's.

    A product with a matrix and one with its transpose are timed, as in every layer's forward and backward pass.
    """
    seconds = {}
    generator = torch.Generator().manual_seed(0)
    rows, weight = (torch.randn(size, 512, generator=generator) for size in (32, 1024))
    for dtype in (torch.float32, torch.bfloat16):
        a, b = rows.to(dtype), weight.to(dtype)
        runs = []
        for _ in range(4):  # the first one also sets up
            start = time.perf_counter()
            (a @ b.T) @ b
            runs.append(time.perf_counter() - start)
        seconds[dtype] = min(runs)
    return seconds[torch.bfloat16] / seconds[torch.float32]
