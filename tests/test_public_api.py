"""The public namespace: complete, documented, and cheap to import."""

import inspect
import subprocess
import sys

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


def test_names_live_where_the_namespace_says() -> None:
    """The lazy table and the imports for type checkers must not drift apart."""
    source = inspect.getsource(outcome_rl)
    typed = source.split("if TYPE_CHECKING:")[1].split("_HOME")[0]
    for name in set(outcome_rl.__all__) - {"__version__"}:
        assert f"{name}," in typed or f"{name}\n" in typed, f"{name} is not imported for type checkers"


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import outcome_rl", ("torch", "transformers", "vllm", "sympy")),
        ("import outcome_rl; outcome_rl.outcome_key('1/2')", ("torch", "transformers", "sympy")),
        ("import outcome_rl; outcome_rl.group_advantages", ("transformers", "vllm", "sympy", "matplotlib")),
        ("import outcome_rl.cli", ("torch", "transformers", "rich.progress")),
        ("import outcome_rl.grpo.trainer", ("vllm", "matplotlib", "datasets", "sympy")),
    ],
)
def test_imports_stay_light(statement: str, unwanted: tuple[str, ...]) -> None:
    code = f"{statement}\nimport sys\nprint([name for name in {unwanted!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
