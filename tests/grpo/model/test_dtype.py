"""`model.dtype=auto` becomes the machine's data type once, and a run keeps its own."""

import logging

import pytest
import torch

from outcome_rl.grpo.config.schema import ModelConfig
from outcome_rl.grpo.model import dtype as module
from outcome_rl.grpo.model.dtype import with_dtype
from outcome_rl.grpo.model.policy import Policy
from outcome_rl_kernels.dtypes import Bfloat16


@pytest.fixture(params=[True, False], ids=["fast", "slow"])
def fast(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A machine that multiplies bfloat16 fast, or not."""
    found = Bfloat16(request.param, "the test says so")
    preferred = torch.bfloat16 if found.is_fast else torch.float32
    monkeypatch.setattr(module, "preferred_dtype", lambda device: (preferred, found.reason))
    return found.is_fast


def test_auto_is_the_machines(fast: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    expected = torch.bfloat16 if fast else torch.float32
    assert Policy.load(ModelConfig(path="toy", device="cpu")).dtype == expected
    assert "the test says so" in caplog.text


def test_a_chosen_dtype_stays(fast: bool) -> None:
    for name in ("float32", "bfloat16"):
        config = ModelConfig(device="cpu", dtype=name)
        assert with_dtype(config, "float32") is config


@pytest.mark.parametrize("saved", ["float32", "bfloat16"])
def test_a_run_keeps_its_dtype_and_says_so(fast: bool, saved: str, caplog: pytest.LogCaptureFixture) -> None:
    assert with_dtype(ModelConfig(device="cpu"), saved).dtype == saved
    differs = saved != ("bfloat16" if fast else "float32")
    assert [record.levelname for record in caplog.records] == ["WARNING"] * differs
    assert f"began in {saved}" in caplog.text or not differs
