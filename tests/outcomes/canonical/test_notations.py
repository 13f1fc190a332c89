"""Notations: what is read as a time, a date, a base or a word, and what only looks like one."""

import pytest

from outcome_rl.outcomes.canonical.notations import in_notation, is_word


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("4:30p.m.", "time:4:30pm"),
        ("04:30PM", "time:4:30pm"),
        ("4pm", "time:4:00pm"),
        ("4:30 a.m", "time:4:30am"),
        ("4:05", "time:4:05"),
        ("12:00", "time:12:00"),
        ("4:30", "time:4:30"),  # or a ratio: equal to itself only
        ("25:00", None),
        ("2024-7-4", "date:2024-7-4"),
        ("7/4/2024", "t:7/4/2024"),
        ("CH_3OH", "t:CH_3OH"),
        ("July4", None),
        ("1011_2", "base:2:1011"),
        ("0011_2", "base:2:11"),
        ("1A_{16}", "base:16:1A"),
        ("12_{five}", "base:5:12"),
        ("(12)_5", "base:5:12"),
        ("1 011_2", "base:2:1011"),
        ("17_{10}", "q:17/1"),
        ("A_1", None),  # a variable
        ("x_2", None),
    ],
)
def test_notations(text: str, canonical: str | None) -> None:
    assert in_notation(text) == canonical


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("odd", True),
        ("Evelyn", True),
        ("Привет", True),
        ("no", True),
        ("AB", True),
        ("xy", False),
        ("x", False),
        ("pi", False),
        ("inf", False),
        ("x+odd", False),
        ("5", False),
    ],
)
def test_words(text: str, word: bool) -> None:
    assert is_word(text) is word
