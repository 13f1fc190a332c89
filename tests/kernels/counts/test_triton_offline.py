"""The kernels of the count table and of the group advantages compile for every target without spilling registers."""

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
from outcome_rl_kernels.counts.triton_kernels import launch_rehash

KEYS = torch.zeros(16, dtype=torch.int64)
ALL_METHODS = tuple(method for method in BONUS_METHODS if method != "none")


def settings(*methods: str) -> GroupSettings:
    return GroupSettings(cast(Any, methods), (0.1,) * len(methods), 0.5, None, "no_bonus", "std", 1, 1e-6)


def launches() -> Iterator[tuple[str, Callable[[], object]]]:
    table = TritonTable(2**16, torch.device("cpu"))
    yield "observe", lambda: table.observe(KEYS, KEYS)
    yield "lookup", lambda: table.lookup(KEYS, KEYS)
    yield "merge", lambda: table.add(CountEntries(KEYS, KEYS, KEYS), pending=True)
    yield "load", lambda: table.add(CountEntries(KEYS, KEYS, KEYS), pending=False)
    yield "grow", lambda: launch_rehash(table.slots, torch.cat([table.slots, table.slots]), table.state)
    # The paper's group, a sample a thread; the largest, two a thread.
    for n in (8, 256):
        rewards, outcomes = torch.zeros(4, n), torch.zeros(4, n, dtype=torch.int64)
        group = partial(triton_group_advantages, rewards, KEYS[:4], outcomes)
        wide = partial(triton_group_advantages, rewards.double(), KEYS[:4], outcomes)
        counts = cast(Any, SimpleNamespace(table=table))
        yield f"{n}: one method", partial(group, None, counts, settings("ucb_con"), True)
        yield f"{n}: all methods", partial(group, rewards > 0, counts, settings(*ALL_METHODS), True)
        yield f"{n}: only look", partial(group, None, counts, settings("ucb"), False)
        yield f"{n}: no counts", partial(group, None, None, settings("batch"), True)
        yield f"{n}: all methods, float64", partial(wide, rewards > 0, counts, settings(*ALL_METHODS), True)


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_spills(target: str, tmp_path: Path) -> None:
    kernels = compile_launches(__file__, target, tmp_path)
    assert len(kernels) == 2 + 1 + 2 + 2 + 1 + 2 * 5
    assert not [kernel for kernel in kernels if kernel.spilled_bytes]
