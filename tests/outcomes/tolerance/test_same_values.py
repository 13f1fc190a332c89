"""Comparison by values: identities that keys miss, near misses, and what a few numbers cannot tell."""

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from outcome_rl.outcomes.keys import plain_text
from outcome_rl.outcomes.tolerance.same_values import same_values

EQUAL = [
    (r"\lceil n/2 \rceil", r"\lfloor (n+1)/2 \rfloor"),
    (r"\lfloor n^2/4 \rfloor", r"\frac{2n^2 - 1 + (-1)^n}{8}"),
    (r"(2n-1)!!", r"\frac{(2n)!}{2^n n!}"),
    (r"\sum_{k=1}^{n} k^3", r"\frac{n^2(n+1)^2}{4}"),
    (r"\prod_{k=2}^{n} (1 - \frac{1}{k^2})", r"\frac{n+1}{2n}"),
    (r"\sum_{i=1}^{n} i", r"\sum_{k=1}^{n} k"),
    (r"\ln\frac{1+x}{1-x}", r"\ln(1+x) - \ln(1-x)"),
    (r"\ln x^2", r"2 \ln x"),  # what stands in a logarithm is positive
    (r"\frac{x^2}{2} + C", r"\frac{x^2+1}{2} + c"),
    (r"\ln|x| + C", r"\ln|3x| + C"),
]


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_equal_values(gold: str, answer: str) -> None:
    assert same_values(plain_text(gold), plain_text(answer))
    assert same_values(plain_text(answer), plain_text(gold))


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        *((one[0], other[1]) for one, other in itertools.permutations(EQUAL, 2)),
        *((gold, f"{answer} + 1") for gold, answer in EQUAL[:8]),
        (r"\frac{x^2}{2} + C", r"x^2 + C"),
        (r"\frac{x^2}{2} + C", r"\frac{x^2}{2}"),
        ("180 - a + c", "90 - a + c"),  # no constant of integration
        ("E - V + 1 + C", "E - V + C"),
        # Equal at many simple numbers.
        (r"5t + \sin(120\pi t)", "5t"),
        (r"\frac{x}{2} + \frac{\sin(12\pi x)}{24\pi} + C", r"\frac{x}{2} - \frac{\sin(12\pi x)}{24\pi} + C"),
        (r"\lfloor \frac{n}{16} \rfloor", r"\lfloor \frac{n+1}{16} \rfloor"),
        (r"\lfloor \frac{n}{50} \rfloor", r"\lfloor \frac{n+1}{50} \rfloor"),
        (r"\max(0, 1 - |x - 100|)", "0x"),  # other at a short stretch only
        ("n", "|n|"),
        ("n", r"n + \lfloor n / 9999 \rfloor"),
        ("n", r"n + \lfloor n / 10^{41} \rfloor + 0 \cdot 99999"),
        (r"\sqrt{(x-50)^2}", "50 - x"),
        (r"\operatorname{sgn}(y + 11)", r"1 + 0y"),
        (r"\pm n", r"\pm n + 0"),
        ("abcd", "a b c d + 0"),  # more than three variables
        ("2", "1 + 1"),  # none: keys decide
        ("n", "k"),
        ("", ""),
    ],
)
def test_other_values(gold: str, answer: str) -> None:
    assert not same_values(plain_text(gold), plain_text(answer))


@st.composite
def polynomials(draw: st.DrawFn) -> list[int]:
    return draw(st.lists(st.integers(-4, 4), min_size=2, max_size=4))


@given(polynomials(), polynomials(), st.sampled_from("nx"))
def test_polynomials_are_the_same_if_their_coefficients_are(a: list[int], b: list[int], name: str) -> None:
    def text(coefficients: list[int]) -> str:
        return "+".join(f"({c}){name}^{i}" for i, c in enumerate(coefficients, start=1)) + f"+{name}-{name}"

    assume(any(a) or any(b))  # keys tell that both are 0
    width = max(len(a), len(b))
    are_equal = a + [0] * (width - len(a)) == b + [0] * (width - len(b))
    assert same_values(plain_text(text(a)), plain_text(text(b))) == are_equal
