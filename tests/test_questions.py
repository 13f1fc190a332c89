"""Keys of questions, and ids of prompts that have none of their own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl.questions import question_id, question_key


def test_question_keys() -> None:
    assert question_key(7) == question_key("7") != question_key("8") != 0
    with pytest.raises(ValueError, match="must not be blank"):
        question_key(" ")
    with pytest.raises(TypeError, match=r"got float 7\.0"):
        question_key(7.0)
    with pytest.raises(TypeError, match="got bool"):
        question_key(True)


PROMPTS = st.text(st.characters(), min_size=1)


@given(PROMPTS, PROMPTS)
def test_the_id_of_a_prompt_is_that_of_its_text(first: str, second: str) -> None:
    """Text or messages, in any alphabet; changes that a data format makes to a message do not change its id."""
    assert (question_id(first) == question_id(second)) == (first == second)
    chats = [[{"role": "user", "content": text}] for text in (first, second)]
    assert (question_id(chats[0]) == question_id(chats[1])) == (first == second)
    assert question_id(chats[0]) != question_id(first)
    as_arrow = [{"content": first, "role": "user", "name": None}]
    assert question_id(np.array(as_arrow)) == question_id(tuple(as_arrow)) == question_id(chats[0])


def test_the_id_of_a_prompt_stays_as_it_is() -> None:
    """Saved counts depend on it."""
    assert question_id("2 + 2 = ?") == "c81b6a9e5d9968e8f094c3d89ef607e3"
    assert (
        question_id([{"role": "user", "content": "Wie groß ist die Summe? 求和"}]) == "e1f12be0be8e7ef6881fe3d0766516d0"
    )


@pytest.mark.parametrize("part", [object(), b"bytes", {1, 2}])
def test_a_prompt_that_is_more_than_text_has_no_id(part: object) -> None:
    with pytest.raises(TypeError, match="prompt must be text or a list of messages of text"):
        question_id([{"role": "user", "content": [{"type": "image", "image": part}]}])
