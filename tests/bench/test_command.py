"""The command `outcome-rl bench loss`."""

import pytest
import torch
from command_line import invoke

from outcome_rl import cli


def test_the_policy_loss_is_measured_for_a_head_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", lambda function, **options: fail)
    sizes = ("--hidden", "16", "--vocabulary", "101", "--tokens", "70", "--rounds", "2")
    shown = invoke(cli.main, "bench", "loss", "--device", "cpu", *sizes).stdout
    assert "70 tokens, hidden 16, vocabulary 101" in shown
    rows = {line[:21].strip(): line.split() for line in shown.splitlines()[-10:-5]}
    for name in ("outcome_rl", "plain PyTorch"):
        assert float(rows[name][-1]) < 2e-2  # bfloat16 where it is fast
    assert rows["with torch.compile"][-2:] == ["failed:", "RuntimeError"]
    assert invoke(cli.main, "bench", "loss", "--tokens", "0").exit_code == 2
    assert invoke(cli.main, "bench", "speed").exit_code == 2


def test_a_gpu_that_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = invoke(cli.main, "bench", "loss", "--device", "cuda")
    assert (result.exit_code, result.stderr) == (2, "error: --device cuda, but PyTorch sees no GPU; use --device cpu\n")
