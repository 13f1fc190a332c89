"""Quantities: conversions, sums of units, and what is none."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl.outcomes.canonical.lexer import tokenize, units_in
from outcome_rl.outcomes.keys import plain_text
from outcome_rl.outcomes.tolerance.quantities import _UNITS, known_unit, quantity


@pytest.mark.parametrize(
    "spellings",
    [
        (r"2.5\text{ m}", "250 cm", "2500 millimeters", r"\frac52 \text{ metres}"),
        (r"1\frac12 \text{ hours}", "90 minutes", "1 hour 30 minutes", "1 hour and 30 minutes", "5400 seconds"),
        (r"\$0.75", r"$\$0.75$", "75 cents", "0.75 dollars"),
        (r"20\text{ m/s}", r"72 \text{ km/h}", r"72 \mathrm{~km} / \mathrm{h}"),
        ("60 mph", "60 miles per hour", "60 miles/hour"),
        (r"0.25\text{ m}^2", r"2500\text{ cm}^2", "2500 square centimeters", "2500 cm²"),
        ("5 feet 6 inches", "66 inches", r"66 \text{ in}"),
        (r"3\times 10^3\text{ J}", r"3\text{ kJ}"),
        ("5 ft 8 in", "68 inches"),
        ("5 years", "60 months", "4 years 12 months"),
        ("450 nm", r"4.5\times10^{-7}\,\mathrm{m}"),
    ],
)
def test_spellings_of_one_quantity(spellings: tuple[str, ...]) -> None:
    found = {quantity(spelling) for spelling in spellings}
    assert len(found) == 1
    assert None not in found


@given(st.integers(1, 10**6), st.sampled_from([("km", "m", 1000), ("hours", "minutes", 60), ("kg", "g", 1000)]))
def test_a_conversion_multiplies(number: int, units: tuple[str, str, int]) -> None:
    large, small, ratio = units
    assert quantity(rf"{number} \text{{ {large}}}") == quantity(rf"{number * ratio} \text{{ {small}}}") is not None
    assert quantity(rf"{number} \text{{ {large}}}") != quantity(rf"{number} \text{{ {small}}}")


@pytest.mark.parametrize(
    "answer",
    ["", "5", "5 apples", "m", "x m", r"5\%", "3 hours 2 feet", r"\text{m}", "5 parsecs", "x" * 2000, "5 cm/m/s"],
)
def test_no_quantity(answer: str) -> None:
    assert quantity(answer) is None


def test_a_square_is_no_length() -> None:
    assert quantity(r"5 \text{ m}") == ((("length", 1),), Fraction(5))
    assert quantity(r"5 \text{ m}^2") == ((("length", 2),), Fraction(5))


@pytest.mark.parametrize("name", sorted(_UNITS))
def test_every_unit_of_the_table_is_read(name: str) -> None:
    """The lexer has its own list, which leaves lone letters out that name points and constants as often."""
    dimension, size = _UNITS[name]
    assert known_unit(name) == (((dimension, 1),), size)
    if name not in ("l", "A", "C"):
        assert units_in(tokenize(plain_text(rf"5\text{{ {name}}}"))) == {name}
        assert quantity(rf"5\text{{ {name}}}") == (((dimension, 1),), 5 * size)
