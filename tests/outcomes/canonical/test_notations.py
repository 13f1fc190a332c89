"""Notations: what is read as a time, a date, a base or a word, and what only looks like one."""

import pytest
from tables import cases

from outcome_rl.outcomes.canonical.notations import in_notation, is_word


@pytest.mark.parametrize(("text", "canonical"), cases(__file__, "notations"))
def test_notations(text: str, canonical: str) -> None:
    assert (in_notation(text) or "none") == canonical


def test_words() -> None:
    assert all(map(is_word, ("odd", "Evelyn", "Привет", "no", "AB")))
    assert not any(map(is_word, ("xy", "x", "pi", "inf", "x+odd", "5")))
