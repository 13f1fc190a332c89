"""The core needs its own dependencies alone, and a command that needs more says how to install it."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import core_only
from packaging.requirements import Requirement

from outcome_rl.extras import MODULES, missing_extra

README = core_only.PROJECT.with_name("README.md")
COMMANDS = """
import json, sys
from outcome_rl.cli import main
for arguments in json.loads(sys.argv[1]):
    try:
        main(arguments)
    except SystemExit as end:
        print("status", end.code, file=sys.stderr)
"""


def run(code: str, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, core_only.__file__, code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def test_packages_of_extras_are_hidden() -> None:
    hidden = set(core_only.other_modules())
    assert {"transformers", "rich", "pytest", "matplotlib"} <= hidden
    assert not {"torch", "numpy", "safetensors", "math_verify", "mpmath", "outcome_rl"} & hidden


def test_losses_counts_outcomes_and_the_readmes_first_snippet_need_the_core_alone() -> None:
    snippet = README.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    done = run(core_only.USE_THE_CORE + snippet)
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert (first, last) == ("done", snippet.rpartition("# ")[2].strip())


def test_the_core_has_env_analyze_and_bench_loss_and_other_commands_name_their_extra(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"question_id": 1, "gold": "4", "response": "so \\\\boxed{4}"}\n')
    of_core = [["env"], ["analyze", "a.jsonl"], ["bench", "loss", "--help"]]
    done = run(COMMANDS, json.dumps(of_core), folder=tmp_path)
    assert done.stderr.splitlines()[-1] == "status 0", done.stderr  # of --help
    for printed in ("linear_policy_loss", "1 question, 1 sample", "usage: outcome-rl bench "):
        assert printed in done.stdout
    of_extras = [["train", "--config", "toy"], ["eval", "toy"], ["export", "a", "b"], ["report", "run"]]
    done = run(COMMANDS, json.dumps(of_extras), folder=tmp_path)
    *errors, last = done.stderr.split("status 2\n")
    assert (len(errors), last) == (4, "")
    for error in errors:
        assert error.startswith("error: ")
        assert error.endswith(
            "is not installed, and this needs it: in the checkout of outcome_rl, pip install '.[train]'\n"
        )


def test_modules_that_no_extra_has_are_not_explained() -> None:
    assert missing_extra(ModuleNotFoundError("No module named 'outcome_rl.nothing'", name="outcome_rl.nothing")) is None
    assert missing_extra(ModuleNotFoundError("somewhere")) is None


def test_every_extra_that_is_named_exists_and_has_the_modules() -> None:
    project = tomllib.loads(core_only.PROJECT.read_text())["project"]["optional-dependencies"]
    packages = {
        "yaml": "pyyaml",
        "flash_attn": "flash-attn",
        "accelerate": "trl",  # trl needs accelerate
    }
    for extra, modules in MODULES.items():
        listed = {Requirement(requirement).name for requirement in project[extra]}
        assert {packages.get(module, module) for module in modules} == listed
