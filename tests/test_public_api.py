"""The public namespace: complete, documented, and cheap to import."""

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import outcome_rl


def test_every_public_name_resolves_and_is_documented() -> None:
    for name in outcome_rl.__all__:
        value = getattr(outcome_rl, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"outcome_rl.{name} has no docstring"
    assert set(outcome_rl.__all__) <= set(dir(outcome_rl))


def test_unknown_names_say_what_there_is() -> None:
    with pytest.raises(AttributeError, match=r"no attribute .polcy_loss.; it offers .*policy_loss"):
        outcome_rl.polcy_loss  # noqa: B018


def test_type_checkers_read_the_same_list() -> None:
    """A stub exports what it imports under its own name, from the module that the name is loaded from."""
    stub = ast.parse(Path(outcome_rl.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [statement for statement in stub.body if isinstance(statement, ast.ImportFrom)]
    assert [alias.name for one in imports for alias in one.names] == outcome_rl.__all__
    for one in imports:
        for alias in one.names:
            assert alias.asname == alias.name
            assert getattr(outcome_rl, alias.name) is getattr(import_module(str(one.module)), alias.name)


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import outcome_rl", ("torch", "transformers", "vllm", "sympy")),
        ("import outcome_rl; outcome_rl.outcome_key('1/2')", ("torch", "transformers", "sympy")),
        ("import outcome_rl; outcome_rl.group_advantages", ("transformers", "vllm", "sympy", "matplotlib")),
        ("import outcome_rl.cli", ("torch", "transformers", "rich.progress")),
        ("import outcome_rl.grpo.trainer", ("vllm", "matplotlib", "datasets", "sympy")),
        ("import outcome_rl.settings", ("torch", "omegaconf", "numpy")),
        ("from outcome_rl.isolation.grader import judge; judge('1', '2')", ("torch",)),
        ("import outcome_rl.toy as toy; toy.DialectTask().problems('test', 1)", ("torch", "transformers", "numpy")),
        (
            "import outcome_rl, outcome_rl.outcomes.answer_mask\n"
            "outcome_rl.OutcomeMatcher().classify(['q'], ['#### 5'], ['5'])",
            ("torch", "transformers", "sympy", "math_verify"),
        ),
        (
            "import outcome_rl.cli, outcome_rl.metrics, outcome_rl.analyze, outcome_rl.environment, contextlib\n"
            "with contextlib.suppress(SystemExit): outcome_rl.cli.main(['--help'])",
            ("torch", "transformers", "sympy", "math_verify"),
        ),
    ],
)
def test_imports_stay_light(statement: str, unwanted: tuple[str, ...]) -> None:
    code = f"{statement}\nimport sys\nprint([name for name in {unwanted!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
