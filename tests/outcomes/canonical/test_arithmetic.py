"""Arithmetic: values against mpmath at four times the precision, keys against exact fields, and the bounds."""

import threading
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl.outcomes.canonical import arithmetic
from outcome_rl.outcomes.canonical.arithmetic import (
    FUNCTIONS,
    KEY_BITS,
    Undefined,
    add,
    compare,
    divide,
    mp,
    multiply,
    number_key,
    power,
    rounded,
    simplified,
)
from outcome_rl.outcomes.canonical.lexer import TooLarge

RATIONALS = st.fractions(min_value=-50, max_value=50, max_denominator=99)


@given(RATIONALS, RATIONALS)
def test_rationals_are_exact(a: Fraction, b: Fraction) -> None:
    assert add(a, b) == a + b
    assert multiply(a, b) == a * b
    if b:
        assert divide(a, b) == a / b
    assert power(a, Fraction(3)) == a**3


class Surd:
    """a + b sqrt(2) with rational a and b, exactly: what the 512-bit numbers are compared with."""

    def __init__(self, a: Fraction, b: Fraction) -> None:
        self.a, self.b = a, b

    def times(self, other: "Surd") -> "Surd":
        return Surd(self.a * other.a + 2 * self.b * other.b, self.a * other.b + self.b * other.a)

    def number(self) -> object:
        return add(self.a, multiply(self.b, power(Fraction(2), Fraction(1, 2))))


@given(*[RATIONALS] * 4)
def test_two_routes_to_a_number_have_one_key_and_two_numbers_have_two(
    a: Fraction, b: Fraction, c: Fraction, d: Fraction
) -> None:
    x, y = Surd(a, b), Surd(c, d)
    product = x.times(y)
    key = number_key(multiply(x.number(), y.number()))
    assert key == number_key(product.number())
    assert (key == number_key(x.number())) == ((product.a, product.b) == (a, b))
    if product.b == 0:  # a rational that was computed through roots is that rational
        assert key == f"q:{product.a.numerator}/{product.a.denominator}"


@given(RATIONALS, st.integers(-40, 40))
def test_a_number_and_its_neighbours_differ(value: Fraction, exponent: int) -> None:
    root = power(Fraction(3), Fraction(1, 2))
    number = add(value, root)
    assert number_key(number) != number_key(add(number, Fraction(2) ** exponent))


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"floor", "ceil", "binomial"}))
def test_functions_agree_with_mpmath_at_2048_bits(name: str) -> None:
    truth = mpmath.MPContext()
    truth.prec = 2048
    names = {"ln": "ln", "log": "ln", "lg": "log10", "abs": "fabs", "factorial": "factorial"}
    mpmath_name = names.get(name, name.replace("arc", "a"))
    for numerator in (1, 3, 7):
        ours = FUNCTIONS[name][1](Fraction(numerator, 10))
        theirs = getattr(truth, mpmath_name)(truth.mpf(numerator) / 10)
        error = (
            abs(theirs - truth.mpmathify(ours.numerator) / ours.denominator)
            if isinstance(ours, Fraction)
            else abs(theirs - ours)
        )
        assert error <= abs(theirs) * truth.mpf(2) ** -(KEY_BITS + 200)


@pytest.mark.parametrize(
    ("base", "exponent", "key"),
    [
        (Fraction(4, 9), Fraction(1, 2), "q:2/3"),
        (Fraction(-8), Fraction(1, 3), "q:-2/1"),
        (Fraction(-8), Fraction(2, 3), "q:4/1"),
        (Fraction(-4), Fraction(1, 2), "c:q:0/1,q:2/1"),
        (Fraction(2), Fraction(-3), "q:1/8"),
        (Fraction(7**90), Fraction(1, 45), "q:49/1"),
    ],
)
def test_powers_of_rationals(base: Fraction, exponent: Fraction, key: str) -> None:
    assert number_key(power(base, exponent)) == key


@given(st.fractions(max_denominator=10**20))
def test_a_rational_is_recognised_in_its_bits(value: Fraction) -> None:
    assert simplified(arithmetic.inexact(value)) == value


def test_an_irrational_number_is_no_rational() -> None:
    for number in (mp().pi * 1, power(Fraction(2), Fraction(1, 2)), mp().e * Fraction(10) ** 30):
        assert simplified(number) is number


@pytest.mark.parametrize(
    "operation",
    [
        lambda: power(Fraction(9), Fraction(9**9)),
        lambda: power(mp().pi * 1, Fraction(10**9)),
        lambda: power(mp().e * 1, mp().e ** 20),
        lambda: FUNCTIONS["factorial"][1](Fraction(10**9)),
        lambda: FUNCTIONS["binomial"][1](Fraction(10**9), Fraction(5 * 10**8)),
        lambda: FUNCTIONS["sin"][1](Fraction(2**100)),
        lambda: multiply(Fraction(2) ** 32767, Fraction(2) ** 32767),
        # 10^80 + pi and 10^80 + e would share 77 digits
        lambda: add(Fraction(10**80), mp().pi * 1),
        lambda: add(power(Fraction(10**160 + 1), Fraction(1, 2)), Fraction(-(10**80))),
    ],
    ids=range(9),
)
def test_what_is_too_large_or_would_be_keyed_by_noise_is_refused(operation) -> None:
    with pytest.raises(TooLarge):
        operation()


@pytest.mark.parametrize(
    "operation",
    [
        lambda: divide(Fraction(1), Fraction(0)),
        lambda: divide(mp().pi * 1, add(mp().pi * 1, -mp().pi * 1)),
        lambda: power(Fraction(0), Fraction(-1)),
        lambda: power(Fraction(0), Fraction(0)),
        lambda: FUNCTIONS["ln"][1](Fraction(0)),
        lambda: FUNCTIONS["tan"][1](mp().pi / 2),
        lambda: FUNCTIONS["factorial"][1](Fraction(-1)),
    ],
    ids=range(7),
)
def test_what_has_no_value_is_undefined(operation) -> None:
    with pytest.raises(Undefined):
        operation()


@given(RATIONALS, RATIONALS)
def test_compare_is_the_order_of_the_numbers(a: Fraction, b: Fraction) -> None:
    root = power(Fraction(2), Fraction(1, 2))
    assert compare(a, b) == (a > b) - (a < b)
    assert compare(add(a, root), add(b, root)) == (a > b) - (a < b)
    assert compare(a, float("inf")) == -1
    assert compare(float("-inf"), float("-inf")) == 0


def test_mpmath_of_the_caller_is_left_alone() -> None:
    before = mpmath.mp.prec
    rounded(mp().pi * 1)
    assert mpmath.mp.prec == before
    keys: list[str] = []
    with mpmath.workprec(30):
        thread = threading.Thread(target=lambda: keys.append(number_key(FUNCTIONS["sin"][1](Fraction(1)))))
        thread.start()
        thread.join()
    assert keys == [number_key(FUNCTIONS["sin"][1](Fraction(1)))]
