"""Keys of formulas: equal exactly for equal polynomials, whatever their spelling."""

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (r"\sin(a+b)-\sin(a-b)", r"2\sin b\cos a"),
        (r"\arcsin x", r"\frac\pi2-\arccos x"),
        (r"\frac{x^{10}-1}{x-1}", "x^9+x^8+x^7+x^6+x^5+x^4+x^3+x^2+x+1"),
        (r"\ln(2x)-\ln x", r"\ln2"),
        (r"\sqrt{x^2}", "|x|"),
        (r"\frac{n!}{(n-1)!}", "n"),
        (r"\cosh t", r"\frac{e^t+e^{-t}}2"),
        # Of functions that join several analytic ones
        ("|x-8|", r"2|4-\frac x2|"),
        ("|x||x|", "x^2"),
        (r"\frac{x}{\sqrt x}", r"\sqrt x"),
        (r"\frac1{\sqrt{2x}}", r"\frac{\sqrt{2x}}{2x}"),
        (r"\sqrt[3]{x^3}", "x"),
        (r"\sqrt[3]{-8x}", r"-2\sqrt[3]x"),
        (r"\sqrt{4x+4}", r"2\sqrt{x+1}"),
        (r"\lceil x\rceil", r"-\lfloor-x\rfloor"),
    ],
)
def test_identities(a: str, b: str) -> None:
    assert key(a) == key(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        # They differ on a short stretch, or far from 1.
        (r"\lfloor\frac{x}{10^{12}}\rfloor", r"\lfloor\frac{x}{10^{12}}\rfloor^5"),
        (r"x-8+\sqrt{x^2-16x+64}", r"2(x-8+\sqrt{x^2-16x+64})"),
        (r"\sqrt{x}\sqrt{y}", r"\sqrt{xy}"),
        (r"\ln x+\ln y", r"\ln(xy)"),
        (r"(x^2)^n", "x^{2n}"),
        (r"\arctan(\tan x)", "x"),
        (r"\arctan x+\arctan\frac1x", r"\frac\pi2"),
        (r"\sqrt[4]{x^2}", r"\sqrt x"),
        (r"|ab|", "ab"),
        (r"\sqrt{x^2y^2}", "xy"),
        (r"\ln x^2", r"2\ln x"),
        ("x^{2000}+1", "x^{2001}+1"),
        ("x+10^{-40}", "x"),
    ],
)
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
