"""The rational grammar: every spelling of a number, exactly, and nothing else."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl.outcomes.canonical.rational import parse_rational


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("025", 25),
        ("-7", -7),
        ("+7", 7),
        ("27.0", 27),
        (".5", Fraction(1, 2)),
        ("1,234,567.50", Fraction(2469135, 2)),
        ("1 234 567", 1234567),
        (r"\frac12", Fraction(1, 2)),
        (r"-\frac{3}{4}", Fraction(-3, 4)),
        (r"\frac{-3}{12}", Fraction(-1, 4)),
        (r"\frac{12}{5,525}", Fraction(12, 5525)),
        ("6/8", Fraction(3, 4)),
        ("-1 1/2", Fraction(-3, 2)),
        (r"1\frac12", Fraction(3, 2)),
        ("x=5", 5),
        (r"\theta=\frac12", Fraction(1, 2)),
        ("x_1=5", 5),
        ("1e3", 1000),
        (r"1.5\times10^{-3}", Fraction(3, 2000)),
        (r"10^3", 1000),
    ],
)
def test_spellings(text: str, value: Fraction | int) -> None:
    assert parse_rational(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "1/0",
        r"\frac10",
        "1,23",
        "1234,567",
        "12,34,567",
        "1, 234",
        "1 2",
        r"2\frac32",  # a product to TeX
        r"\frac123",
        "9^{9^9}",
        "1e999",
        "10^10",  # TeX reads 10^1 0
        "1_000",
        "٣",
        "²",
        "--5",
        "f(x)=5",
        "xy=5",
        "nan",
        "inf",
        "1.2.3",
    ],
)
def test_anything_else_is_no_number(text: str) -> None:
    assert parse_rational(text) is None


@given(st.fractions(), st.integers(0, 3))
def test_reads_back_every_fraction(value: Fraction, zeros: int) -> None:
    sign, n, d = "-" if value < 0 else "", abs(value.numerator), value.denominator
    assert parse_rational(f"{value.numerator}/{d}") == value
    assert parse_rational(rf"{sign}\frac{{{n}}}{{{d}}}") == value
    assert parse_rational(f"{'0' * zeros}{n:,}") == n or zeros


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**12), max_value=10**12))
def test_decimals_are_exact(value: object) -> None:
    assert parse_rational(f"{value:f}") == Fraction(str(value))
