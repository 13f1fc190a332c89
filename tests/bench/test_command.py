"""Commands of the benchmarks: `outcome-rl bench loss`, and those of a checkout."""

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import invoke

from outcome_rl import cli

ROOT = Path(__file__).resolve().parents[2]
OF_A_CHECKOUT = ("counts", "outcomes", "step")


def test_the_help_lists_the_benchmark() -> None:
    shown = " ".join(invoke(cli.main, "bench", "--help").stdout.split())
    assert "loss time, memory and error of the policy loss" in shown
    assert "measure a part of the library" in invoke(cli.main, "--help").stdout


def test_options_are_passed_on_and_errors_are_one_line() -> None:
    shown = invoke(cli.main, "bench", "loss", "--help").stdout
    assert shown.startswith("usage: outcome-rl bench loss ")
    assert "--out DIR" in shown
    result = invoke(cli.main, "bench", "loss", "--device", "cpu", "--sections", "nonsense")
    assert result.exit_code == 2
    assert result.stderr == "error: --sections 'nonsense': no section has that in its name\n"
    unknown = invoke(cli.main, "bench", "loss", "--nonsense")
    assert unknown.exit_code == 2
    assert "unrecognized arguments: --nonsense" in unknown.stderr
    assert invoke(cli.main, "bench", "speed").exit_code == 2


@pytest.mark.parametrize("name", OF_A_CHECKOUT)
def test_a_benchmark_of_a_checkout_has_a_help(name: str) -> None:
    command = [sys.executable, "-m", f"bench.{name}", "--help"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert shown.startswith(f"usage: python -m bench.{name} ")
    assert "--out DIR" in shown
