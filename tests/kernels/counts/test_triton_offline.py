"""The kernels of the count table compile for every target, without spills.

Their machine code has the atomics that the protocol needs, and no others.

Names of instructions are those of NVIDIA, then of AMD.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this platform")

from triton_offline import TARGETS, compile_launches

from outcome_rl_kernels.counts.table import CountEntries
from outcome_rl_kernels.counts.triton import TritonTable

pytestmark = pytest.mark.offline
KEYS, OUTCOMES = torch.zeros(16, dtype=torch.int64), torch.zeros(16, 8, dtype=torch.int64)
CORRECT = torch.zeros(16, 8, dtype=torch.bool)


def launches() -> Iterator[tuple[str, Callable[[], object]]]:
    table = TritonTable(2**16, torch.device("cpu"))
    yield "observe", lambda: table.observe(KEYS, OUTCOMES, CORRECT)
    yield "observe, one outcome each", lambda: table.observe(KEYS, KEYS, None)
    yield "lookup", lambda: table.lookup(KEYS, OUTCOMES)
    yield "load", lambda: table.add(CountEntries(KEYS, KEYS, KEYS, KEYS))
    yield "grow", lambda: table.grow(1)


SWAP, ADDITION = "CAS|cmpswap", r"(ATOMG?|REDG?)\.E\.ADD|atomic_add"
RELEASE, ACQUIRE = "MEMBAR|buffer_wbl2", r"CCTL\.IVALL|buffer_inv"


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_spills_and_atomics_and_fences_are_those_of_the_protocol(target: str, tmp_path: Path) -> None:
    kernels = compile_launches(__file__, target, tmp_path)
    assert len(kernels) == 2 + 2 + 1 + 2 + 1
    assert not [kernel for kernel in kernels if kernel.spilled_bytes]
    for kernel in kernels:
        # Phase 1 claims by one compare-and-swap a row, phase 2 adds. A lookup does neither.
        claims = kernel.kernel in ("find_kernel", "rehash_kernel") and kernel.launch != "lookup"
        assert kernel.count(SWAP) == claims, kernel
        assert (kernel.count(ADDITION) > 0) == (kernel.kernel == "commit_kernel"), kernel
        assert kernel.count(RELEASE) == kernel.count(ACQUIRE) == 0, kernel  # between two launches nothing is needed
        if target.startswith("sm_"):
            assert kernel.registers * kernel.threads <= 65536, kernel  # else it could not be launched
