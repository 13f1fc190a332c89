"""Every kernel compiles, without a GPU, for every target and without spilling registers."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this platform")

import triton
import triton.language as tl
from triton_offline import TARGETS, compile_launches


@triton.jit
def _hungry_kernel(x_ptr, BLOCK: tl.constexpr):
    """Holds more values than a thread has registers, which shows that this file would notice."""
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(x_ptr + offsets, x / tl.sum(x))


def launches() -> Iterator[tuple[str, Callable[[], object]]]:
    yield "hungry", lambda: _hungry_kernel[(1,)](torch.zeros(1), BLOCK=32768, num_warps=1)


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_spills(target: str, tmp_path: Path) -> None:
    kernels = compile_launches(__file__, target, tmp_path)
    assert {kernel.launch for kernel in kernels if kernel.spilled_bytes} == {"hungry"}
