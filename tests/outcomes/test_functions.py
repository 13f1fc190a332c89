"""Outcome functions: canonical values, names and versions, failures, batches."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import outcome_functions
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl import Outcome, outcome_function
from outcome_rl.outcomes.functions import Failure, Found, call, found, load_function, rule_of, value_of

VALUES = st.recursive(
    st.text(max_size=5) | st.integers() | st.floats(allow_nan=False) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_texts_are_equal_exactly_if_values_and_types_are(a: Any, b: Any) -> None:
    text = found(a, 0).text
    assert value_of(text) == a
    assert found(value_of(text), 0).text == text
    assert (text == found(b, 0).text) == (repr(a) == repr(b))


@pytest.mark.parametrize("value", [["a"], {"a": 1}, {1}, b"a", 1j, object(), ("a", ["b"]), "x" * 70000])
def test_other_results_are_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="an outcome m"):
        found(value, 0)


@pytest.mark.parametrize("span", [(-1, 2), (2, 1), (0, 9), (0.0, 1), (True, 2)])
def test_spans_must_be_in_the_response(span: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match="span"):
        found(Outcome("a", *span), 8)


def test_no_answer_has_no_text() -> None:
    assert found(None, 3) == Found("")
    assert found(Outcome(None, 0, 0), 3) == Found("")


def test_exceptions_are_outcomes_of_their_responses() -> None:
    results = call(outcome_functions.obey, ["raise", "fine", "unhashable"], [{}] * 3)
    assert results[0] == Failure("error", "KeyError: 'no such thing'")
    assert results[1] == Found('"fine"')
    assert isinstance(results[2], Failure)
    assert "TypeError: an outcome must be text" in results[2].reason


def test_batched_functions_see_the_whole_call() -> None:
    assert call(outcome_functions.ranks, ["bb", "a", "bb"], [{}] * 3) == [Found("1"), Found("0"), Found("1")]

    @outcome_function(batched=True)
    def short(responses: Sequence[str], examples: Sequence[Mapping[str, Any]]) -> list[int]:
        return [1]

    short.__qualname__ = "short"
    with pytest.raises(ValueError, match="must return 2 outcomes"):
        call(short, ["a", "b"], [{}] * 2)


def test_the_rule_is_name_and_version() -> None:
    assert rule_of(outcome_functions.length) == "function/outcome_functions:length/1"
    assert rule_of(outcome_functions.ranks) == "function/outcome_functions:ranks/7"
    assert rule_of(outcome_functions.obey_isolated) == "function/outcome_functions:obey/1"
    for nameless in (lambda response, example: 1, json.JSONDecoder()):
        with pytest.raises(ValueError, match="a name of its own"):
            rule_of(nameless)  # type: ignore[arg-type]


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
    (tmp_path / "json.py").write_text("def one(response, example):\n    return 1\n")
    with pytest.raises(ValueError, match="another module named 'json'; rename the file"):
        load_function(f"{tmp_path}/json.py:one")
    with pytest.raises(ValueError, match=r"there is no file .*none\.py; give its path"):
        load_function(f"{tmp_path}/none.py:one")
    with pytest.raises(ValueError, match=r"has no attribute 'two'"):
        load_function(f"{tmp_path}/my_filed_outcomes.py:two")


@pytest.mark.parametrize("name", ["length", "outcome_functions:", "no_such_module:f", "json:no_such", "json:__name__"])
def test_names_without_a_function_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        load_function(name)
