"""Keys of formulas: equal exactly for equal polynomials, whatever their spelling."""

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import cases

from outcome_rl.outcomes.canonical.evaluate import MAX_WORK, POINTS, Evaluator, variable
from outcome_rl.outcomes.canonical.lexer import NotUnderstood, TooLarge, tokenize
from outcome_rl.outcomes.canonical.parser import parse_expression


def key(text: str) -> str:
    return Evaluator().key(parse_expression(tokenize(text)))


COEFFICIENTS = st.lists(st.fractions(-9, 9, max_denominator=6), min_size=1, max_size=5)


def expanded(coefficients: list[Fraction], rng: random.Random) -> str:
    """The polynomial in x as a sum, in any order and with any way to write its terms."""
    terms = []
    for power, c in enumerate(coefficients):
        number = rng.choice([rf"\frac{{{c.numerator}}}{{{c.denominator}}}", f"({c.numerator}/{c.denominator})"])
        terms.append(number + rng.choice([f"x^{{{power}}}", rf"\cdot{{x}}^{power}", "x" * power]) if power else number)
    rng.shuffle(terms)
    return " + ".join(terms).replace(" ", "")


def nested(coefficients: list[Fraction]) -> str:
    """The polynomial in Horner's form."""
    text = "0"
    for c in reversed(coefficients):
        text = rf"\left({text}\right)x-\frac{{{-c.numerator}}}{{{c.denominator}}}"
    return text.replace(r"\left", "").replace(r"\right", "")


@settings(deadline=None)
@given(COEFFICIENTS, COEFFICIENTS, st.randoms())
def test_polynomials_have_one_key_exactly_if_they_are_one(
    a: list[Fraction], b: list[Fraction], rng: random.Random
) -> None:
    assert key(expanded(a, rng)) == key(nested(a)) == key(expanded(a, rng))
    width = max(len(a), len(b))
    same = a + [Fraction(0)] * (width - len(a)) == b + [Fraction(0)] * (width - len(b))
    assert (key(expanded(a, rng)) == key(nested(b))) == same


@pytest.mark.parametrize(("a", "b"), cases(__file__, "identities"))
def test_identities(a: str, b: str) -> None:
    assert key(a) == key(b)


@pytest.mark.parametrize(("a", "b"), cases(__file__, "functions that differ"))
def test_functions_that_differ(a: str, b: str) -> None:
    assert key(a) != key(b)


@pytest.mark.parametrize("text", [r"\cot(\ln x)", r"\tanh(\ln x)", r"\sin(\log_2x)"])
def test_a_function_near_its_limit_is_not_read(text: str) -> None:
    with pytest.raises(NotUnderstood):
        key(text)


def test_a_function_of_an_unknown_function_is_a_function_of_its_argument() -> None:
    assert key("f(x+x)") == key("f(2x)") != key("2f(x)")


def test_variables_are_fixed_and_lie_near_one_on_both_sides() -> None:
    for name in ("x", "y", r"\theta", "x_1"):
        values = [float(variable(name, point)) for point in range(POINTS)]
        assert values[0] > 0 > values[1]
        assert all(0.93 < abs(value) < 0.99 for value in values)
        assert len(set(map(abs, values))) == POINTS
    assert float(variable("x", 0)) == pytest.approx(0.9787331959655247)  # snapshots hold keys made with it


def test_work_is_bounded_for_the_answer_as_a_whole() -> None:
    trees = [parse_expression(tokenize(f"x!+{i}")) for i in range(MAX_WORK // 200)]
    evaluator = Evaluator()
    assert evaluator.key(trees[0])
    with pytest.raises(TooLarge, match="more work"):
        list(map(evaluator.key, trees))
