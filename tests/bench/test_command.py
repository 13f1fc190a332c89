"""`outcome-rl bench`: which benchmarks there are, and how their options and errors reach the user."""

import importlib
import pkgutil
import subprocess
import sys

import pytest
from command_line import invoke

import outcome_rl.bench
from outcome_rl import cli
from outcome_rl.bench import BENCHMARKS


def test_every_module_with_a_main_is_a_benchmark_and_the_other_way_round() -> None:
    names = [module.name for module in pkgutil.iter_modules(outcome_rl.bench.__path__)]
    modules = {name: importlib.import_module(f"outcome_rl.bench.{name}") for name in names}
    assert {name for name, module in modules.items() if hasattr(module, "main")} == set(BENCHMARKS)


def test_the_help_lists_the_benchmarks_with_what_they_measure() -> None:
    shown = " ".join(invoke(cli.main, "bench", "--help").stdout.split())
    for name, what in BENCHMARKS.items():
        assert name in shown
        assert what[:40] in shown
    assert "measure a part of the library" in invoke(cli.main, "--help").stdout


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_options_are_the_benchmarks_own(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "outcome_rl.cli", "bench", name, "--help"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"usage: outcome-rl bench {name} ")


def test_options_are_passed_on_and_errors_are_one_line() -> None:
    result = invoke(cli.main, "bench", "loss", "--device", "cpu", "--sections", "nonsense")
    assert result.exit_code == 2
    assert result.stderr == "error: --sections 'nonsense': no section has that in its name\n"
    unknown = invoke(cli.main, "bench", "loss", "--nonsense")
    assert unknown.exit_code == 2
    assert "unrecognized arguments: --nonsense" in unknown.stderr
    assert invoke(cli.main, "bench", "speed").exit_code == 2


@pytest.mark.parametrize("name", BENCHMARKS)
def test_records_go_where_the_option_says(name: str) -> None:
    shown = invoke(cli.main, "bench", name, "--help").stdout
    assert "--out DIR" in shown
    assert "(outcome-rl-bench)" in shown
