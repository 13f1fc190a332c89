"""Tensors whose memory the system is asked to map in large pages."""

import re
from pathlib import Path

import pytest
import torch

from outcome_rl_kernels.cpu_memory import in_large_pages

SMAPS = Path("/proc/self/smaps")


def has_large_pages(address: int) -> bool:
    """Whether the kernel was asked for large pages at an address."""
    found = False
    for line in SMAPS.read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            start, end = (int(bound, 16) for bound in bounds.groups())
            found = start <= address < end
        elif found and line.startswith("VmFlags:"):
            return "hg" in line.split()
    raise AssertionError(f"no mapping holds address {address:x}")


@pytest.mark.skipif(not SMAPS.is_file(), reason="only Linux says how memory is mapped")
@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="this kernel was built without large pages"
)
def test_whole_pages_of_a_large_tensor_are_asked_for() -> None:
    plain, large = (torch.empty(2**26, dtype=torch.uint8) for _ in range(2))
    assert in_large_pages(large) is large
    inside = large.data_ptr() + 2**25
    assert has_large_pages(inside)
    assert not has_large_pages(plain.data_ptr() + 2**25)


@pytest.mark.parametrize("size", [0, 1, 2**22 - 1, 2**22, 2**22 + 1])
@pytest.mark.parametrize("offset", [0, 1, 4095])
def test_numbers_beside_the_tensor_stay(size: int, offset: int) -> None:
    whole = torch.arange(size + 8192, dtype=torch.int64).to(torch.uint8)
    in_large_pages(whole[offset : offset + size])
    assert whole.equal(torch.arange(size + 8192, dtype=torch.int64).to(torch.uint8))


def test_meta_tensors_have_no_memory() -> None:
    assert in_large_pages(torch.empty(2**24, device="meta")).is_meta
