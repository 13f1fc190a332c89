"""Memory of the CPU that later tensors take again, and never while a tensor uses it."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from outcome_rl_kernels import cpu_memory, linear_policy_loss
from outcome_rl_kernels.cpu_memory import KEPT, empty

CPU = torch.device("cpu")
MIB = 2**20


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    KEPT.clear()
    yield
    KEPT.clear()


def bytes_of(size: int) -> Tensor:
    return empty((size,), torch.uint8, CPU)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 300)), max_size=40))
def test_live_tensors_never_share_memory(steps: list[tuple[bool, int]]) -> None:
    live: list[Tensor] = []
    for step, (is_new, number) in enumerate(steps):
        if is_new:
            live.append(bytes_of(number).fill_(step % 256))
            live[-1].number = step % 256  # type: ignore[attr-defined]
        elif live:
            del live[number % len(live)]
    for tensor in live:
        assert bool((tensor == tensor.number).all())  # type: ignore[attr-defined]
    spans = sorted((tensor.data_ptr(), tensor.data_ptr() + len(tensor)) for tensor in live if len(tensor))
    spans += sorted((memory.data_ptr(), memory.data_ptr() + len(memory)) for memory in KEPT.values())
    assert all(end <= start for (_, end), (start, _) in pairwise(sorted(spans)))


def test_the_smallest_memory_that_fits_is_taken_again() -> None:
    sizes = {size: bytes_of(size) for size in (100, 300, 200)}
    places = {size: tensor.data_ptr() for size, tensor in sizes.items()}
    sizes.clear()
    held = [bytes_of(150), bytes_of(150), bytes_of(99)]
    assert [tensor.data_ptr() for tensor in held] == [places[size] for size in (200, 300, 100)]


def test_memory_that_is_too_small_is_freed_before_more_is_taken() -> None:
    bytes_of(100)
    assert len(KEPT) == 1
    larger = bytes_of(101)
    assert not KEPT
    del larger
    assert [len(memory) for memory in KEPT.values()] == [101]


def test_a_view_keeps_its_memory() -> None:
    view = empty((4, 5), torch.float32, CPU)[1:, 2]
    assert not KEPT
    del view
    assert len(KEPT) == 1


def test_the_largest_are_kept_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_memory, "_MOST_BYTES", 1000)
    held = [bytes_of(size) for size in (500, 400, 300, 1001)]
    del held
    assert sorted(map(len, KEPT.values())) == [400, 500]


@pytest.mark.parametrize("shape", [(0,), (3, 0), (), (7, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_shapes_and_dtypes(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = empty(shape, dtype, CPU)
    assert tensor.shape == shape
    assert tensor.dtype == dtype
    assert tensor.is_contiguous()
    assert empty(shape, dtype, torch.device("meta")).is_meta


def test_threads_never_share_memory() -> None:
    def is_own(value: int) -> bool:
        tensors = (bytes_of(1000).fill_(value) for _ in range(300))
        return all(bool((tensor == value).all()) for tensor in tensors)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(is_own, range(8)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes fork on POSIX systems")
def test_a_forked_process_has_memory_of_its_own() -> None:
    bytes_of(1000).fill_(1)
    child = os.fork()
    if child == 0:
        bytes_of(1000).fill_(255)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    [memory] = KEPT.values()
    assert bool((memory == 1).all())


def test_gradients_of_one_step_outlive_the_next() -> None:
    """As with gradient accumulation, and with gradients that a user keeps."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(50, 8, generator=generator, requires_grad=True)
    labels, mask = torch.randint(50, (2, 6), generator=generator), torch.ones(2, 6, dtype=torch.bool)
    kept, copies = [], []
    for _ in range(4):
        hidden = torch.randn(2, 6, 8, generator=generator)
        linear_policy_loss(hidden, weight, labels, torch.tensor([1.0, -1.0]), mask).loss.backward()
        assert weight.grad is not None
        kept.append(weight.grad)
        copies.append(weight.grad.clone())
        weight.grad = None
    assert all(map(torch.equal, kept, copies))
    assert len({grad.data_ptr() for grad in kept}) == 4
