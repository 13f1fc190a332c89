"""The kernels of the count table and of the group advantages compile for every target, without spills.

Their machine code has the atomics and fences that the protocol needs, and no others.

Names of instructions are those of NVIDIA, then of AMD.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this platform")

from triton_offline import TARGETS, compile_launches

from outcome_rl_kernels.advantages.reference import BONUS_METHODS, GroupSettings
from outcome_rl_kernels.advantages.triton import triton_group_advantages
from outcome_rl_kernels.counts.reference import CountEntries
from outcome_rl_kernels.counts.triton import TritonTable

pytestmark = pytest.mark.offline
KEYS = torch.zeros(16, dtype=torch.int64)
ALL_METHODS = tuple(method for method in BONUS_METHODS if method != "none")


def settings(*methods: str, exponent: float = 0.5) -> GroupSettings:
    return GroupSettings(methods, (0.1,) * len(methods), exponent=exponent)


def launches() -> Iterator[tuple[str, Callable[[], object]]]:
    table = TritonTable(2**16, torch.device("cpu"))
    yield "observe", lambda: table.observe(KEYS, KEYS)
    yield "lookup", lambda: table.lookup(KEYS, KEYS)
    yield "merge", lambda: table.add(CountEntries(KEYS, KEYS, KEYS), pending=True)
    yield "load", lambda: table.add(CountEntries(KEYS, KEYS, KEYS), pending=False)
    yield "grow", lambda: table._grow(1)
    # The paper's group, a sample a thread; the largest, two a thread.
    for n in (8, 256):
        rewards, outcomes = torch.zeros(4, n), torch.zeros(4, n, dtype=torch.int64)
        group = partial(triton_group_advantages, rewards, KEYS[:4], outcomes)
        wide = partial(triton_group_advantages, rewards.double(), KEYS[:4], outcomes)
        counts = cast(Any, SimpleNamespace(table=table))
        yield f"{n}: one method", partial(group, None, counts, settings("ucb_con"), True)
        yield f"{n}: all methods", partial(group, rewards > 0, counts, settings(*ALL_METHODS), True)
        yield f"{n}: another exponent", partial(group, None, counts, settings("ucb_con", exponent=1.0), True)
        yield f"{n}: only look", partial(group, None, counts, settings("ucb"), False)
        yield f"{n}: no counts", partial(group, None, None, settings("batch"), True)
        yield f"{n}: all methods, float64", partial(wide, rewards > 0, counts, settings(*ALL_METHODS), True)


SWAP, ADDITION = "CAS|cmpswap", r"(ATOMG?|REDG?)\.E\.ADD|atomic_add"
RELEASE, ACQUIRE = "MEMBAR|buffer_wbl2", r"CCTL\.IVALL|buffer_inv"


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_spills_and_atomics_and_fences_are_those_of_the_protocol(target: str, tmp_path: Path) -> None:
    kernels = compile_launches(__file__, target, tmp_path)
    assert len(kernels) == 2 + 1 + 2 + 2 + 1 + 2 * 6
    assert not [kernel for kernel in kernels if kernel.spilled_bytes]
    for kernel in kernels:
        is_group = kernel.kernel == "_group_advantages_kernel"
        counts = is_group and not kernel.launch.endswith(("only look", "no counts"))
        # Phase 1 claims by one compare-and-swap a sample, phase 2 adds. A lookup does neither.
        claims = counts or (kernel.kernel in ("find_kernel", "rehash_kernel") and kernel.launch != "lookup")
        samples = 256 // kernel.threads if is_group and kernel.launch.startswith("256") else 1  # of a thread
        assert kernel.count(SWAP) == claims * samples, kernel
        assert (kernel.count(ADDITION) > 0) == (counts or kernel.kernel == "commit_kernel"), kernel
        # The last program to arrive must see the claims of all: a release before its arrival, an acquire after it.
        # Between two launches nothing is needed.
        assert kernel.count(RELEASE) == kernel.count(ACQUIRE) == counts, kernel
        if target.startswith("sm_"):
            assert kernel.registers * kernel.threads <= 65536, kernel  # else it could not be launched
