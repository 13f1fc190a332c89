"""Functions of users: by name from modules and files, and the sentences about faulty ones."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import outcome_functions
import pytest
import torch

from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.schema import DataConfig, RewardConfig
from outcome_rl.grpo.data.problems import load_problems
from outcome_rl.grpo.data.reward import RewardFunction
from outcome_rl.outcomes.functions import wrapped
from outcome_rl.user_functions import boolean, load_function
from outcome_rl_kernels import linear_policy_loss, register_adv_estimator, register_bonus, register_token_loss
from outcome_rl_kernels.loss.types import TokenLoss

SETTINGS: dict[str, Callable[[str], object]] = {
    setting: lambda name, setting=setting: load_config("toy", [f"{setting}={name}"])  # type: ignore[misc]
    for setting in ("actor.loss_mode", "exploration.bonus", "exploration.adv_estimator", "exploration.outcome")
}
SETTINGS["reward.function"] = lambda name: RewardFunction(RewardConfig(name))
SETTINGS["data"] = lambda name: load_problems([name], DataConfig())


def test_functions_are_loaded_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_function("outcome_functions:length") is outcome_functions.length
    (tmp_path / "my_local_outcomes.py").write_text("def one(response, example):\n    return 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # so that sys.path is as before afterwards
    assert load_function("my_local_outcomes:one")("", {}) == 1


def test_the_current_folder_is_searched_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file next to downloaded data must not stand in for a module that the library imports later."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    load_function("outcome_rl.math_verify:parse")
    assert str(tmp_path) not in sys.path
    (tmp_path / "my_last_outcomes.py").write_text("def one(response, example):\n    return 1\n")
    assert load_function("my_last_outcomes:one")("", {}) == 1
    assert sys.path[-1] == str(tmp_path)


def test_functions_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_filed_outcomes.py").write_text("def one(response, example):\n    return 1\n")
    assert load_function(f"{tmp_path}/my_filed_outcomes.py:one")("", {}) == 1
    for name in ("json", "time"):  # of a file, and of none
        (tmp_path / f"{name}.py").write_text("def one(response, example):\n    return 1\n")
        with pytest.raises(ValueError, match=f"another module named '{name}'; rename the file"):
            load_function(f"{tmp_path}/{name}.py:one")
    with pytest.raises(ValueError, match=r"there is no file .*none\.py; give its path"):
        load_function(f"{tmp_path}/none.py:one")
    with pytest.raises(ValueError, match=r"has no attribute 'two'"):
        load_function(f"{tmp_path}/my_filed_outcomes.py:two")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise RuntimeError('boom')", r"importing it raised RuntimeError: boom \(.*faulty\.py, line 1\); correct"),
        ("import sys\nsys.exit(3)", r"importing it raised SystemExit: 3 \(.*faulty\.py, line 2\)"),
        ("def f(:", r"importing it raised SyntaxError: .*\(faulty\.py, line 1\)"),
        ("import no_such_module", "No module named 'no_such_module'; put the module on PYTHONPATH"),
        ("def f(response): return 1", r"must be a function \(response, example\).*too many positional"),
        ("async def f(response, example): return 1", "returns its result; got the coroutine"),
        ("f = 3", r"must be a function \(response, example\); got int"),
    ],
    ids=["raises", "exits", "syntax", "missing", "one argument", "coroutine", "number"],
)
def test_faulty_modules_are_one_sentence(source: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text(source)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        patch.delitem(sys.modules, "faulty", raising=False)
        for load in (wrapped, lambda name: load_function(name, "(response, example)")):
            sys.modules.pop("faulty", None)
            with pytest.raises(ValueError, match=message):
                load(f"{tmp_path / 'faulty.py'}:f")


@pytest.mark.parametrize("name", ["length", "outcome_functions:", "no_such_module:f", "json:no_such", "json:__name__"])
def test_names_without_a_function_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        load_function(name)


@pytest.fixture
def kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a module of functions that no setting takes."""
    (tmp_path / "kinds.py").write_text("def f(only): return only\ndef batch(a, b, c, d): return a\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "kinds", raising=False)
    return "kinds"


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("function", ["f", "batch"])
def test_every_setting_checks_its_function_when_it_is_read(kinds: str, setting: str, function: str) -> None:
    """Also where a built-in bonus has the name: it would stand in for the function."""
    registered = setting.rpartition(".")[2] in ("bonus", "adv_estimator")
    wanted = f"@register_{setting.rpartition('.')[2]}" if registered else r"must be a function \(.*\); got .*function"
    with pytest.raises(ValueError, match=f"{kinds}:{function} .*{wanted}"):
        SETTINGS[setting](f"{kinds}:{function}")


@pytest.mark.parametrize("setting", [name for name in SETTINGS if name != "data"])
def test_every_setting_is_named_where_its_function_is_missing(kinds: str, setting: str) -> None:
    with pytest.raises(ValueError, match=f"{setting.rpartition('.')[2]}: {kinds}:absent: .*no attribute"):
        SETTINGS[setting](f"{kinds}:absent")


@pytest.mark.parametrize(
    "give",
    [
        lambda function: register_bonus("unfit")(function),
        lambda function: register_adv_estimator("unfit")(function),
        lambda function: register_token_loss("unfit", function),
        lambda function: TokenLoss(function),
        lambda function: linear_policy_loss(
            torch.ones(1, 2, 3), torch.ones(4, 3), torch.zeros(1, 2).long(), torch.ones(1), torch.ones(1, 2).bool(),
            token_loss=function,
        ),
    ],
    ids=["bonus", "estimator", "loss", "TokenLoss", "call"],
)  # fmt: skip
@pytest.mark.parametrize("function", [lambda: 0, "ppo_", 3], ids=["no argument", "text", "number"])
def test_every_registry_checks_its_function(give: Callable[[Any], object], function: object) -> None:
    with pytest.raises((TypeError, ValueError), match="must be"):
        give(function)


@pytest.mark.parametrize("result", [True, np.bool_(True), torch.tensor(True), np.int64(1)])
def test_a_boolean_of_a_library_is_a_boolean(result: Any) -> None:
    assert boolean("is_correct", result) is True


@pytest.mark.parametrize("result", [None, "yes", 2, float("nan"), [True]])
def test_another_result_decides_nothing(result: Any) -> None:
    with pytest.raises(TypeError, match="is_correct must return True or False; got"):
        boolean("is_correct", result)
