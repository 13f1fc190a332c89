"""Number words against a writer of them, and texts of the same words that say no number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl import equivalent
from outcome_rl.outcomes.canonical.number_words import number_of

NAMES = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty thirty forty fifty sixty seventy eighty ninety
"""
SMALL, TENS = NAMES.split()[:20], NAMES.split()[18:]


def said(number: int, joint: str) -> str:
    """Return a number below 10^9 in words."""
    if number < 20:
        return SMALL[number]
    if number < 100:
        return TENS[number // 10] + (f"-{SMALL[number % 10]}" if number % 10 else "")
    scale, name = next(
        pair for pair in ((10**6, "million"), (10**3, "thousand"), (100, "hundred")) if number >= pair[0]
    )
    rest = number % scale
    tail = f"{joint if scale == 100 else ' '}{said(rest, joint)}" if rest else ""
    return f"{said(number // scale, joint)} {name}{tail}"


@given(st.integers(0, 10**9 - 1), st.sampled_from([" ", " and "]), st.sampled_from(["", " dollars", "."]))
def test_a_number_in_words_is_the_number(number: int, joint: str, behind: str) -> None:
    words = said(number, joint)
    assert number_of(words.replace("-", " ").split()) == str(number)
    assert equivalent(f"{words.capitalize()}{behind}", str(number))
    assert not equivalent(words, str(number + 1))


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("one half", "1/2"),
        ("two-thirds", "2/3"),
        ("a quarter", ".25"),
        ("a hundred", "100"),
        ("a thousand and five", "1005"),
        ("fifty-two point six two", "52.62"),
        ("nine point eight gallons", "9.8"),
        (r"\text{Three}", "3"),
        ("twelve hundred", "1200"),
        ("seventeen percent", "17%"),
    ],
)
def test_fractions_decimals_and_units(words: str, number: str) -> None:
    assert equivalent(words, number)


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("third", "1/3"),  # a place
        ("one two", "12"),
        ("a", "1"),
        ("nineteen eighty-four", "1984"),  # perhaps a year
        ("one of the twins", "1"),
        ("twenty eleven", "31"),
        ("and", "0"),
        ("two and", "2"),
    ],
)
def test_other_texts_are_no_numbers(words: str, number: str) -> None:
    assert not equivalent(words, number)
