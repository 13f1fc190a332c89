"""Launches and waits of `Explorer.score` with counts on a GPU, for which meta tensors stand."""

import pytest
from ledger import ledger_of

pytest.importorskip("triton", reason="Triton has no build for this platform")

from meta_gpu import replace_kernels, take_meta_for_gpu

from outcome_rl import Explorer


def test_a_step_waits_for_the_gpu_once_and_launches_little(monkeypatch: pytest.MonkeyPatch) -> None:
    take_meta_for_gpu(monkeypatch)
    kernels = replace_kernels(monkeypatch)
    explorer = Explorer(bonus="ucb_con", coef=0.2, device="meta")
    ids, golds = ["a"] * 4 + ["b"] * 4, ["1"] * 4 + ["4"] * 4
    responses = [f"\\boxed{{{answer}}}" for answer in (1, 2, 1, 3, 4, 4, 5, 6)]
    ledger = ledger_of(lambda _: explorer.score(ids, responses, golds))
    # To the GPU from pinned memory, which the host does not wait for, and back, which it does: docs/training.md.
    assert ledger.waits == ["_to_copy", "to host"]
    assert kernels.number == 3  # two to count, one to read before
    assert len(ledger.operations) <= 45


def test_a_gate_adds_one_launch_and_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    take_meta_for_gpu(monkeypatch)
    kernels = replace_kernels(monkeypatch)
    explorer = Explorer(bonus="none", gate=[8, 0.0, 0.9], device="meta")
    ledger = ledger_of(lambda _: explorer.score(["a"] * 4, [r"\boxed{1}"] * 4, ["1"] * 4))
    assert ledger.waits == ["_to_copy", "to host"]
    assert kernels.number == 3
