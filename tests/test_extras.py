"""The core needs its own dependencies alone, and a command that needs more says how to install it."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import core_only
import pytest
from packaging.requirements import Requirement

from outcome_rl.extras import MODULES, missing_extra

README = core_only.PROJECT.with_name("README.md")
CLI = "import sys; from outcome_rl.cli import main; main(sys.argv[1:])"


def run(code: str, *arguments: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, core_only.__file__, code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def test_packages_of_extras_are_hidden() -> None:
    hidden = set(core_only.other_modules())
    assert {"transformers", "rich", "pytest", "matplotlib"} <= hidden
    assert not {"torch", "numpy", "safetensors", "math_verify", "mpmath", "outcome_rl"} & hidden
    done = run("import rich")
    assert done.returncode == 1
    assert "No module named 'rich'" in done.stderr


def test_losses_counts_and_outcomes_need_the_core_alone() -> None:
    done = run(core_only.USE_THE_CORE)
    assert done.stdout == "done\n", done.stderr


def test_the_readmes_first_snippet_needs_the_core_alone() -> None:
    snippet = README.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    done = run(snippet)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == snippet.rpartition("# ")[2].strip()


def test_the_core_has_the_commands_env_analyze_and_bench_loss(tmp_path: Path) -> None:
    shown = run(CLI, "env", "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["operations"]
    (tmp_path / "a.jsonl").write_text('{"question_id": 1, "gold": "4", "response": "so \\\\boxed{4}"}\n')
    shown = run(CLI, "analyze", tmp_path / "a.jsonl")
    assert shown.returncode == 0, shown.stderr
    assert "1 question, 1 sample" in shown.stdout
    shown = run(CLI, "bench", "loss", "--help")
    assert shown.returncode == 0, shown.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "--config", "toy"),
        ("eval", "toy"),
        ("export", "a", "b"),
        ("report", "run"),
        ("hard-set", "toy"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_that_needs_an_extra_says_how_to_install_it(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = run(CLI, *arguments, folder=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert line.endswith("is not installed, and this needs it: in the checkout of outcome_rl, pip install '.[train]'")


def test_modules_that_no_extra_has_are_not_explained() -> None:
    assert missing_extra(ModuleNotFoundError("No module named 'outcome_rl.nothing'", name="outcome_rl.nothing")) is None
    assert missing_extra(ModuleNotFoundError("somewhere")) is None


def test_every_extra_that_is_named_exists_and_has_the_modules() -> None:
    project = tomllib.loads(core_only.PROJECT.read_text())["project"]["optional-dependencies"]
    packages = {
        "yaml": "pyyaml",
        "flash_attn": "flash-attn",
        "accelerate": "trl",  # trl needs accelerate
        "reasoning_gym": "reasoning-gym",
    }
    for extra, modules in MODULES.items():
        listed = {Requirement(requirement).name for requirement in project[extra]}
        assert {packages.get(module, module) for module in modules} == listed
