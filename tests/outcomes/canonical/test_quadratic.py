"""Quadratic conditions: coefficients from values, roots, and the sign at rational numbers."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from outcome_rl.outcomes.canonical.intervals import point, union
from outcome_rl.outcomes.canonical.quadratic import coefficients, roots, solutions

numbers = st.fractions(-5, 5, max_denominator=6)
POINTS = [Fraction(n, 7) for n in (-9, -2, 3, 8)]
HOLDS = {
    "<": lambda y: y < 0, ">": lambda y: y > 0, r"\leq": lambda y: y <= 0, r"\geq": lambda y: y >= 0,
    r"\neq": lambda y: y != 0,
}  # fmt: skip


@given(numbers, numbers, numbers)
def test_coefficients_come_from_four_values(a: Fraction, b: Fraction, c: Fraction) -> None:
    assert coefficients(POINTS, [a * x * x + b * x + c for x in POINTS]) == (a, b, c)


def test_a_cubic_function_has_none() -> None:
    assert coefficients(POINTS, [x**3 for x in POINTS]) is None


@given(numbers.filter(bool), numbers, numbers)
def test_roots(a: Fraction, p: Fraction, q: Fraction) -> None:
    assert roots(a, -a * (p + q), a * p * q) == sorted((p, q))


@given(numbers.filter(bool), numbers)
def test_the_root_of_a_linear_function(b: Fraction, root: Fraction) -> None:
    assert roots(Fraction(0), b, -b * root) == [root]


@given(numbers, numbers, numbers, st.sampled_from(sorted(HOLDS)), numbers)
def test_a_number_solves_a_condition_exactly_if_it_holds_there(
    a: Fraction, b: Fraction, c: Fraction, operator: str, x: Fraction
) -> None:
    if not (a or b):
        return
    solved = solutions(a, b, c, operator)
    assert solved is not None
    for number in (x, *(root for root in roots(a, b, c) if type(root) is Fraction)):
        is_in = union((solved, point(number))) == solved
        assert is_in == HOLDS[operator](a * number * number + b * number + c)
