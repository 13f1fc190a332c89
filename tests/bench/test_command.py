"""Commands of the benchmarks: `outcome-rl bench loss`, and those of a checkout."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command_line import invoke

from outcome_rl import cli

ROOT = Path(__file__).resolve().parents[2]
OF_A_CHECKOUT = ("counts", "loss", "outcomes", "step")


def test_the_help_lists_the_benchmark() -> None:
    shown = " ".join(invoke(cli.main, "bench", "--help").stdout.split())
    assert "loss time, memory and error of the policy loss" in shown
    assert "measure a part of the library" in invoke(cli.main, "--help").stdout


def test_the_policy_loss_is_measured_for_a_head_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", lambda function, **options: fail)
    sizes = ("--hidden", "16", "--vocabulary", "101", "--tokens", "70", "--rounds", "2")
    shown = invoke(cli.main, "bench", "loss", "--device", "cpu", *sizes).stdout
    assert "70 tokens, hidden 16, vocabulary 101" in shown
    rows = {line[:21].strip(): line.split() for line in shown.splitlines()[-6:-2]}
    for name in ("outcome_rl", "plain PyTorch"):
        assert float(rows[name][-1]) < 2e-2  # bfloat16 where it is fast
    assert rows["with torch.compile"][-2:] == ["failed:", "RuntimeError"]
    assert invoke(cli.main, "bench", "loss", "--tokens", "0").exit_code == 2
    assert invoke(cli.main, "bench", "speed").exit_code == 2


@pytest.mark.parametrize("name", OF_A_CHECKOUT)
def test_a_benchmark_of_a_checkout_has_a_help(name: str) -> None:
    command = [sys.executable, "-m", f"bench.{name}", "--help"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert shown.startswith(f"usage: python -m bench.{name} ")
    assert "--out DIR" in shown
