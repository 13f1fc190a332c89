"""Functions of users: by name from modules and files, and the sentences about faulty ones."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import outcome_functions
import pytest
import torch

from outcome_rl.outcomes.functions import wrapped
from outcome_rl.user_functions import boolean, load_function


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
        ("f = 3", "must be a function; got int"),
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


@pytest.mark.parametrize("result", [True, np.bool_(True), torch.tensor(True), np.int64(1)])
def test_a_boolean_of_a_library_is_a_boolean(result: Any) -> None:
    assert boolean("is_correct", result) is True


@pytest.mark.parametrize("result", [None, "yes", 2, float("nan"), [True]])
def test_another_result_decides_nothing(result: Any) -> None:
    with pytest.raises(TypeError, match="is_correct must return True or False; got"):
        boolean("is_correct", result)
