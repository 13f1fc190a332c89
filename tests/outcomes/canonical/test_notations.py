"""Notations: what is read as a time, a date, a base or a word, and what only looks like one."""

import pytest

from outcome_rl.outcomes.canonical.notations import in_notation, is_word


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("4pm", "time:4:00pm"),
        ("4:05", "time:4:05"),
        ("4:30", "time:4:30"),  # or a ratio: equal to itself only
        ("25:00", None),
        ("2024-7-4", "date:2024-7-4"),
        ("7/4/2024", "t:7/4/2024"),
        ("CH_3OH", "t:CH_3OH"),
        ("1011_2", "base:2:1011"),
        ("0011_2", "base:2:11"),
        ("1A_{16}", "base:16:1A"),
        ("12_{five}", "base:5:12"),
        ("17_{10}", "q:17/1"),
        ("A_1", None),  # a variable
    ],
)
def test_notations(text: str, canonical: str | None) -> None:
    assert in_notation(text) == canonical


def test_words() -> None:
    assert all(map(is_word, ("odd", "Evelyn", "Привет", "no", "AB")))
    assert not any(map(is_word, ("xy", "x", "pi", "inf", "x+odd", "5")))
