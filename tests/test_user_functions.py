"""Functions of the user are found by module or by file, and errors name the setting and the fix."""

import pickle
from pathlib import Path

import pytest

from outcome_rl.user_functions import load_function

SOURCE = """
from dataclasses import dataclass

@dataclass
class Pair:
    a: int = 1

LIMIT = 3

def reward(response, example):
    return Pair(len(response))
"""


def test_a_module_and_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_rewards.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_function("my_rewards:reward", "reward.function")("abc", {}).a == 3
    pair = load_function(f"{tmp_path}/my_rewards.py:reward", "reward.function")("abc", {})
    assert pickle.loads(pickle.dumps(pair)) == pair
    (tmp_path / "json.py").write_text("def reward(response, example): return 0")  # hides nothing
    load_function(f"{tmp_path}/json.py:reward", "reward.function")
    assert load_function("json:dumps", "x")([]) == "[]"


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("reward", ValueError, r"x=reward must have the form module:name or path\.py:name"),
        ("rewards.py:", ValueError, r"x=rewards\.py: must have the form"),
        ("none.py:reward", FileNotFoundError, r"x=none\.py:reward: there is no file none\.py\. Give its path"),
        ("no_such.module:reward", ValueError, r"Python finds no module 'no_such'\. Install it, .* path\.py:name"),
        ("my.py:rewards", ValueError, r"my\.py has no function 'rewards'; it has dataclass, Pair, reward\. Name one"),
        ("my.py:LIMIT", ValueError, r"my\.py has no function 'LIMIT'; it has .*reward"),
        ("needs.py:reward", ModuleNotFoundError, "no_such_package"),
        ("broken.py:reward", SyntaxError, "never closed"),
    ],
)
def test_what_cannot_be_loaded_is_named(
    name: str, error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.py").write_text(SOURCE)
    Path("needs.py").write_text("import no_such_package")
    Path("broken.py").write_text("def reward(")
    with pytest.raises(error, match=message):
        load_function(name, "x")
