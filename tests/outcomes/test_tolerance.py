"""Tolerance: what a generous comparison with the gold answer accepts, what it does not, and that keys stay strict."""

import itertools
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl import OutcomeMatcher, equivalent
from outcome_rl.outcomes import keys
from outcome_rl.outcomes.canonical.units import readings_of
from outcome_rl.outcomes.tolerance import contradicts, sizes, within_tolerance


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("180.67", r"\frac{542}{3}"),
        ("1.41", r"\sqrt{2}"),
        ("3, 4", "p = 3, q = 4"),
        ("x = -5, p = 14/3", "-5, 14/3"),
        ("16", "|r - s| = 16"),
        (r"\frac{3\pi}{2}, 1", r"\theta=\frac{3\pi}{2}, f\left(\frac{2\pi}{3}\right)=1"),
        (r"\frac{3\pi}{2}, 1", r"\theta=\frac{3\pi}{2} \text{ 且 } f(\frac{2\pi}{3})=1"),
        ("5", r"5 \text{ apples}"),
        ("500", "Rs. 500"),
        ("18", "18本书"),
        (r"12 \text{ marbles}", "12"),
        (r"C = \frac{2\pi}{3}", r"120^\circ"),
        ("f(n) = 2n + 1007", "f(m) = 2m + 1007"),
        ("1000.99", "1000,99"),
        (r"2.5\text{ m}", r"250\text{ cm}"),
        (r"\frac38", r"37.5\%"),
        (r"1.60 \times 10^{-19}\text{ J}", r"1.602\times10^{-19} \text{ joules}"),
        (r"9.81\text{ m/s}^2", "9.807"),
        (r"12\text{ apples}", r"12\text{ apple}"),
    ],
)
def test_agreement(gold: str, answer: str) -> None:
    assert within_tolerance(gold, answer)
    assert not equivalent(gold, answer)
    with OutcomeMatcher(tolerant=True) as matcher:
        outcomes = matcher.classify_answers(["q", "q"], [answer, gold], [gold, gold])
    assert outcomes.correct.tolist() == [True, True]


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("180.67", "180.6"),
        (r"1.60 \times 10^{-19}", r"1.602\times10^{-18}"),
        ("25.3 kJ", "25.34 J"),
        ("180.67", "180.67 dozen"),
        ("1.25x", "1.254x"),
        ("5.00", "5i"),
        ("3", r"\pi \approx 3"),
        ("10 cm, 20 cm", "15 cm, 15 cm"),
        ("3 m and 5 m", "8 m"),
        ("542/3", "180.67"),  # a rounded answer to an exact question
        ("x^2 + y^2 = 16", "16"),
        ("6, 1", "n(n+1) = 6, x = 1"),
        ("12", r"12^{\mathrm{th}} grade"),
        (r"5 \text{ apples}", r"5 \text{ pears}"),
        (r"\frac{\pi}{6}", "30"),
        ("f(n) = 2n", "f(m) = 3m"),
        ("1234", "1.234"),
        *(
            pair
            for one in ("1,2", "3,5", "5,12")
            for pair in ((one, one.replace(",", ".")), (one.replace(",", "."), one))
        ),
        *(("4:20", other) for other in ("0.2", "1/5", "1:5", r"\frac15")),
        ("", "5"),
        (r"50\%", r"5000\%"),
        ("b < y", "a = b < y"),
        *(("IV", "VI"), ("BCA", "ABC"), ("HTH", "HHT"), ("no", "on"), ("odd", "dod"), (r"\text{saw}", r"\text{was}")),
        (r"11\text{ m}", r"5\text{ m}, 6\text{ m}"),  # a list of quantities is no sum
        ("f(x) = x^2", r"f(a) = a \cdot x"),
    ],
)
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
UNITS = (
    ("5 m", r"5\text{ m}", "5 meters", "5米"),
    ("5 km", r"5\text{ km}", "5千米", "5公里"),
    ("5 cm", r"5\text{ cm}", "5厘米"),
    ("5 cm^2", r"5\text{ cm}^2", "5 cm²", r"5 \mathrm{~cm}^{2}", "5 square centimeters", "5平方厘米"),
    ("5 cm^3", r"5\text{ cm}^3", "5立方厘米"),
    ("5 g", r"5\text{ g}", "5克"),
    ("5 kg", r"5\text{ kg}", "5千克", "5公斤"),
    ("5 hours", r"5\text{ h}", "5小时"),
    ("5 minutes", r"5 \text{ min}", "5分钟"),
    (r"\$5", "$5", "5 dollars", "5 USD", r"5\text{ dollars}", "5美元"),
    ("5€", "€5", "5 euros", r"5\text{ euros}", "5 EUR", "5欧元"),
    ("£5", r"\pounds 5", "5 GBP"),
    ("5 cents", "5¢"),
    ("₹5", "5 rupees", "Rs. 5", "5 INR"),
    (r"5^\circ", "5°", "5 degrees"),
    ("5 radians", r"5\text{ radians}"),
    (r"5\text{ J}", "5 joules"),
    ("5 kJ", r"5\text{ kJ}"),
    ("5 eV", r"5\text{ eV}"),
    ("5 m/s", r"5\text{ m/s}", "5 meters per second"),
    ("5 km/h", r"5\text{ km/h}"),
)


def agree(gold: str, answer: str) -> bool:
    return not contradicts(gold, answer) if equivalent(gold, answer) else within_tolerance(gold, answer)


@pytest.mark.parametrize("unit", UNITS, ids=lambda spellings: spellings[0])
def test_a_unit_agrees_with_its_spellings_and_with_none_and_no_other_one(unit: tuple[str, ...]) -> None:
    for other in UNITS:
        for gold, answer in itertools.product(unit, other):
            assert agree(gold, answer) == (unit is other), (gold, answer)
    for text in unit:
        assert agree("5", text)
        assert agree(text, "5")


@pytest.mark.parametrize(
    "spellings",
    [
        (r"2.5\text{ m}", "250 cm", "2500 millimeters", r"\frac52 \text{ metres}"),
        (r"1\frac12 \text{ hours}", "90 minutes", "5400 seconds"),
        (r"\$0.75", r"$\$0.75$", "75 cents", "0.75 dollars"),
        (r"20\text{ m/s}", r"72 \text{ km/h}", r"72 \mathrm{~km} / \mathrm{h}"),
        ("5.5 feet", "66 inches", r"66 \text{ in}"),
        ("450 nm", r"4.5\times10^{-7}\,\mathrm{m}"),
    ],
)
def test_spellings_of_one_quantity(spellings: tuple[str, ...]) -> None:
    for one, other in itertools.product(spellings, repeat=2):
        assert sizes(one) & sizes(other), (one, other)


@given(st.integers(1, 10**6), st.sampled_from([("km", "m", 1000), ("hours", "minutes", 60), ("kg", "g", 1000)]))
def test_a_conversion_multiplies(number: int, units: tuple[str, str, int]) -> None:
    large, small, ratio = units
    assert sizes(rf"{number} \text{{ {large}}}") & sizes(rf"{number * ratio} \text{{ {small}}}")
    assert not sizes(rf"{number} \text{{ {large}}}") & sizes(rf"{number} \text{{ {small}}}")


@pytest.mark.parametrize("answer", ["", "5", "m", "x m", "5 units", "5x", "5m", "1 hour 30 minutes", "x" * 2000])
def test_no_quantity(answer: str) -> None:
    assert not sizes(answer)


@pytest.mark.parametrize(
    "alike",
    ["N·m|J|W s|V A s|kg m^2/s^2", "m/s^2|m s^{-2}|m·s⁻²", "Pa|N/m²|kg/(m s^2)", "1000 mL|L|dm^3|cubic decimeters"]
    + [f"1000 m{unit}|{unit}|0.001 k{unit}" for unit in ("W", "Hz", "Pa", "V", "A", "F", "eV", "Ω", "mol", "g")]
    + [
        "60 min|hour",
        "100 cm|meters|米",
        "100 hPa|0.1 bar|10 kPa",
        "10000 m^2|ha|公顷",
        "percent|%",
        "miles per hour|mph",
    ],
)
def test_units_of_one_dimension_and_size(alike: str) -> None:
    parts = [re.fullmatch("([0-9.]+ )?(.*)", unit) for unit in alike.split("|")]
    found = [
        {(dimension, size * Fraction(part[1] or 1)) for dimension, size in readings_of(part[2])}
        for part in parts
        if part
    ]
    assert set.intersection(*found)


@pytest.mark.parametrize("unit", ["boys", "apples", "x", "", "ab", "in 4 weeks", "per", "dozen", "or more"])
def test_no_unit(unit: str) -> None:
    assert not readings_of(unit)


@pytest.mark.parametrize(
    ("gold", "answer", "correct"),
    [
        ("y = 2", "x = 2", False),
        ("r = 3", r"\theta = 3", False),
        ("y = 2", "2", True),
        ("y = 2", "n = 2", True),  # another name for what is asked
        ("S = 5", "A = 5", True),
        (r"5 \text{ km}", r"5 \text{ m}", False),
        (r"5 \text{ km}", "5", True),
        (r"5 \text{ km}", r"5 \text{ units}", True),
        ("$$f(x)=1$$", "$$1$$", True),  # the signs are no dollars
    ],
)
def test_correctness_reads_names_and_units(gold: str, answer: str, correct: bool) -> None:
    assert equivalent(gold, answer)
    for tolerance in (True, False):
        with OutcomeMatcher(tolerant=tolerance) as matcher:
            found = matcher.classify_answers(["q", "q"], [answer, gold], [gold, gold])
        assert found.correct.tolist() == [correct or not tolerance, True]
        assert found.keys[0] == found.keys[1]


def test_long_texts_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(text: str) -> str:
        assert len(text) <= keys.MAX_ANSWER_CHARS
        return text

    monkeypatch.setattr("outcome_rl.outcomes.tolerance.plain_text", read)
    blanks = " " * 20_000
    assert not within_tolerance("5", f"[{blanks}5")
    assert not within_tolerance(f"[{blanks}5", "5")
