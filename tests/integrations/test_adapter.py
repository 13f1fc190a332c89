"""The rules that plug-ins share, without a stack."""

import re
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from outcome_rl.integrations.adapter import Turn, golds_of_all, outcome_turn, stable_id
from outcome_rl.questions import question_id


@pytest.mark.parametrize("whole_episodes", [False, True])
def test_the_last_turn_is_the_last_run_of_written_tokens(whole_episodes: bool) -> None:
    explorer: Any = SimpleNamespace(matcher=SimpleNamespace(needs_row=whole_episodes))
    for size in range(8):
        ids = [*range(100, 100 + size)]
        for written in product([0, 1], repeat=size):
            runs = [*re.finditer("1+", "".join(map(str, written)))]
            start, end = (0, 0) if not runs else (0, size) if whole_episodes else runs[-1].span()
            assert outcome_turn(explorer, ids, written) == Turn(start, ids[start:end])
            assert outcome_turn(explorer, ids, [bool(mark) for mark in written]) == Turn(start, ids[start:end])


def test_an_id_is_that_of_the_row_or_the_hash_of_the_prompt() -> None:
    named: dict[str, Any] = {"place": "the rows", "has_media": True}
    assert stable_id("id", {"id": 3}, "2+2", **named) == stable_id("id", {"id": " 3 "}, "2+2", **named) == "3"
    assert stable_id("", {"id": 3}, "2+2", place="the rows", has_media=False) == question_id("2+2")
    with pytest.raises(ValueError, match=r"id_key='id' must be in the rows; one has \['question'\]"):
        stable_id("id", {"question": "q"}, "2+2", **named)
    with pytest.raises(ValueError, match="id_key must name a stable id in the rows, since with images"):
        stable_id("", {}, "2+2", **named)


@pytest.mark.parametrize("value", [None, True, [3], " "], ids=repr)
def test_an_id_that_names_no_question_is_refused(value: Any) -> None:
    """As text, None would be one id for all questions."""
    with pytest.raises(ValueError, match=r"sample of the prompt '2\+2'.*'id' \(the id\)"):
        stable_id("id", {"id": value}, "2+2", place="the rows", has_media=False)


def test_gold_answers_are_all_of_a_batch_or_none() -> None:
    explorer: Any = SimpleNamespace(config=SimpleNamespace(is_correct=""))
    prompts = ["1+1", "2+2"]
    assert golds_of_all(explorer, ["2", 4], "label", prompts) == ["2", "4"]
    assert golds_of_all(explorer, [None, None], "label", prompts) is None
    with pytest.raises(ValueError, match="label must be one answer in all rows or in none"):
        golds_of_all(explorer, ["2", None], "label", prompts)
    with pytest.raises(ValueError, match=r"sample of the prompt '2\+2'.*must be text or a number; got list"):
        golds_of_all(explorer, ["2", ["4"]], "label", prompts)
    explorer.config.is_correct = "module:function"
    assert golds_of_all(explorer, [["2"], None], "label", prompts) is None
