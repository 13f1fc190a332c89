"""Tolerance: what a generous comparison with the gold answer accepts, what it does not, and that keys stay strict."""

import itertools
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import cases, rows

from outcome_rl import OutcomeMatcher, equivalent
from outcome_rl.outcomes import keys
from outcome_rl.outcomes.canonical.units import readings_of
from outcome_rl.outcomes.tolerance import contradicts, sizes, within_tolerance


@pytest.mark.parametrize(("gold", "answer"), cases(__file__, "agreement"))
def test_agreement(gold: str, answer: str) -> None:
    assert within_tolerance(gold, answer)
    assert not equivalent(gold, answer)
    with OutcomeMatcher(tolerant=True) as matcher:
        outcomes = matcher.classify_answers(["q", "q"], [answer, gold], [gold, gold])
    assert outcomes.correct.tolist() == [True, True]


@pytest.mark.parametrize(("gold", "answer"), cases(__file__, "difference"))
def test_difference(gold: str, answer: str) -> None:
    assert not within_tolerance(gold, answer)


@pytest.mark.parametrize("noun", ["eggs", "pages", "ways", "people", "students", "mg", "mL", "h", "eV", "m/s"])
@pytest.mark.parametrize("number", ["287", "5", "1,200", "2.5"])
def test_an_answer_may_say_what_its_number_counts(number: str, noun: str) -> None:
    assert within_tolerance(number, f"{number} {noun}")
    assert not within_tolerance("7", f"{number} {noun}")
    assert not within_tolerance(rf"{number}\text{{ kg}}", f"{number} {noun}")  # the gold answer says another unit


WORDS = "dozen;more;million;half;squared;or more;grand;km or more;pi;Halves;以上;倍;多个;万;千;分之一"


@pytest.mark.parametrize("words", WORDS.split(";"))
def test_a_word_that_changes_the_number_is_no_noun(words: str) -> None:
    assert not within_tolerance("5", f"5 {words}")
    assert not within_tolerance("5", rf"5\text{{ {words}}}")


# Units, each in all its spellings; no unit is another one.
UNITS = [spellings for _, *spellings in rows(__file__, "units")]


def agree(gold: str, answer: str) -> bool:
    return not contradicts(gold, answer) if equivalent(gold, answer) else within_tolerance(gold, answer)


@pytest.mark.parametrize("unit", UNITS, ids=lambda spellings: spellings[0])
def test_a_unit_agrees_with_its_spellings_and_with_none_and_no_other_one(unit: list[str]) -> None:
    for other in UNITS:
        for gold, answer in itertools.product(unit, other):
            assert agree(gold, answer) == (unit is other), (gold, answer)
    for text in unit:
        assert agree("5", text)
        assert agree(text, "5")


@pytest.mark.parametrize("spellings", [spellings for _, *spellings in rows(__file__, "one quantity")])
def test_spellings_of_one_quantity(spellings: list[str]) -> None:
    for one, other in itertools.product(spellings, repeat=2):
        assert sizes(one) & sizes(other), (one, other)


@given(st.integers(1, 10**6), st.sampled_from([("km", "m", 1000), ("hours", "minutes", 60), ("kg", "g", 1000)]))
def test_a_conversion_multiplies(number: int, units: tuple[str, str, int]) -> None:
    large, small, ratio = units
    assert sizes(rf"{number} \text{{ {large}}}") & sizes(rf"{number * ratio} \text{{ {small}}}")
    assert not sizes(rf"{number} \text{{ {large}}}") & sizes(rf"{number} \text{{ {small}}}")


@pytest.mark.parametrize("answer", ["", "5", "m", "x m", "5 units", "5x", "5m", "30 minutes 1 hour", "x" * 2000])
def test_no_quantity(answer: str) -> None:
    assert not sizes(answer)


@pytest.mark.parametrize("units", [units for _, *units in rows(__file__, "one size")])
def test_units_of_one_dimension_and_size(units: list[str]) -> None:
    parts = [re.fullmatch("([0-9.]+ )?(.*)", unit) for unit in units]
    found = [
        {(dimension, size * Fraction(part[1] or 1)) for dimension, size in readings_of(part[2])}
        for part in parts
        if part
    ]
    assert set.intersection(*found)


@pytest.mark.parametrize("unit", ["boys", "apples", "x", "", "ab", "in 4 weeks", "per", "dozen", "or more"])
def test_no_unit(unit: str) -> None:
    assert not readings_of(unit)


@pytest.mark.parametrize(("gold", "answer", "verdict"), cases(__file__, "names and units"))
def test_correctness_reads_names_and_units(gold: str, answer: str, verdict: str) -> None:
    assert equivalent(gold, answer)
    for tolerance in (True, False):
        with OutcomeMatcher(tolerant=tolerance) as matcher:
            found = matcher.classify_answers(["q", "q"], [answer, gold], [gold, gold])
        assert found.correct.tolist() == [verdict == "correct" or not tolerance, True]
        assert found.keys[0] == found.keys[1]


def test_long_texts_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(text: str) -> str:
        assert len(text) <= keys.MAX_ANSWER_CHARS
        return text

    monkeypatch.setattr("outcome_rl.outcomes.tolerance.plain_text", read)
    blanks = " " * 20_000
    assert not within_tolerance("5", f"[{blanks}5")
    assert not within_tolerance(f"[{blanks}5", "5")
