"""Memory of large tensors on the CPU, which later calls take again.

Memory that is new to a process is mapped page by page when it is first written, and PyTorch gives large blocks back at
once. For the 56 MB of a gradient of SmolLM2's head mapping takes 22 ms, a sixth of a matrix product with 512 tokens. In
pages of 2 MiB it takes 6 ms, but 120 on a virtual machine that lends out the pages it has free.
"""

import weakref
from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

KEPT: dict[int, Tensor] = {}
"""By address: bytes of earlier calls that no tensor uses now."""

_MOST_BYTES = 512 * 2**20


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor whose numbers are not set.

    On the CPU its memory goes to `KEPT` when the last tensor in it is gone: at most 512 MiB, the largest first.
    """
    if device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    size = prod(shape) * dtype.itemsize
    memory = _kept(size)
    if memory is None:
        memory = torch.empty(max(size, 1), dtype=torch.uint8, device="cpu")
    lease = memory.numpy()  # the result holds this array as long as a tensor uses the memory
    weakref.finalize(lease, _keep, memory)
    return torch.frombuffer(lease, dtype=torch.uint8)[:size].view(dtype).view(tuple(shape))


def _kept(size: int) -> Tensor | None:
    """Return the smallest kept memory of at least so many bytes; if there is none, free all before more is taken."""
    for length, address in _sizes():
        memory = KEPT.pop(address, None) if length >= size else None  # one step: no other thread gets the same
        if memory is not None:
            return memory
    KEPT.clear()
    return None


def _keep(memory: Tensor) -> None:
    if len(memory) > _MOST_BYTES:
        return
    KEPT[memory.data_ptr()] = memory
    sizes = _sizes()
    total = sum(length for length, _ in sizes)
    for length, address in sizes:
        if total <= _MOST_BYTES:
            break
        KEPT.pop(address, None)
        total -= length


def _sizes() -> list[tuple[int, int]]:
    """Return sizes and addresses of kept memory, the smallest first."""
    return sorted((len(memory), address) for address, memory in [*KEPT.items()])
