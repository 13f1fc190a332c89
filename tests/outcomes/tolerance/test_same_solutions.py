"""General solutions: any basis of the same functions, and no other functions."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcome_rl.outcomes.keys import plain_text
from outcome_rl.outcomes.tolerance.same_solutions import same_solutions

FUNCTIONS = ("e^{x}", r"\cos x", r"\sin 2x", "x^3", "1")


def formula(constants: str, rows: list[list[int]], particular: str = "") -> str:
    """Return `y =` the sum over constants of the functions times a row of coefficients."""
    terms = [
        f"{name} ({' + '.join(f'({factor}) {one}' for factor, one in zip(row, FUNCTIONS, strict=False))})"
        for name, row in zip(constants.split(), rows, strict=True)
    ]
    return plain_text(f"y = {' + '.join(terms)}{particular}")


def determinant(rows: list[list[int]]) -> int:
    (a, b), (c, d) = rows
    return a * d - b * c


MATRICES = st.lists(st.lists(st.integers(-3, 3), min_size=2, max_size=2), min_size=2, max_size=2)


@settings(deadline=None, max_examples=40)
@given(MATRICES, st.integers(-3, 3))
def test_a_basis_of_the_same_functions_agrees(rows: list[list[int]], factor: int) -> None:
    gold = formula("C_1 C_2", [[1, 0], [0, 1]], "+ x^2")
    answer = formula("A B", rows, f"+ x^2 + ({factor}) e^x")
    assert same_solutions(gold, answer) == (determinant(rows) != 0)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("y = C e^{2x}", "y = -k e^{2x}"),
        ("f(x) = c x", "f(x) = kx"),
        (r"y = C_1 e^{x} + C_2 e^{-2x}", r"y(x) = c_1 e^x + c_2 e^{-2x}"),
        (r"c x^{-2} - \frac{\cos 2x}{2x^2}", r"-\frac{1}{2x^2} \cos 2x + \frac{C}{x^2}"),
        (r"-\sin(3t)/5 + C_{1} \sin 2t + C_{2} \cos 2t", r"C_1 \cos 2t + C_2 \sin 2t - \frac{1}{5} \sin 3t"),
    ],
)
def test_other_names_signs_and_orders(gold: str, answer: str) -> None:
    assert same_solutions(plain_text(gold), plain_text(answer))


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("y = C e^{2x}", "y = C e^{3x}"),
        ("y = C e^{2x}", "y = 2 e^{2x}"),  # one of the solutions
        ("y = C e^{2x}", "y = C e^{2t}"),
        ("y = C e^{2x}", "y = C e^{2x} + 1"),
        ("y = C_1 e^x + C_2 e^{-x}", "y = C_1 e^x + C_2 e^{x}"),
        ("y = C_1 e^x + C_2", "y = C e^x"),
        (r"\frac{2}{3} \frac{C}{S}", r"-\frac{2C}{3S}"),  # quantities
        ("C x", "-C x"),
        ("y = e^{x + C}", "y = e^{x - C}"),  # not linear in the constant
        ("y = e^{kx}", "y = e^{Kx}"),
        ("5", "C"),
        (r"y = C e^x + \sin(12\pi x)", r"y = C e^x - \sin(12\pi x)"),
    ],
)
def test_other_solutions(gold: str, answer: str) -> None:
    assert not same_solutions(plain_text(gold), plain_text(answer))


def test_points_are_distinct() -> None:
    from outcome_rl.outcomes.tolerance import same_solutions as module

    assert len(set(module._POINTS)) == len(module._POINTS) > 2 * module.MAX_CONSTANTS
    assert all(type(point) is Fraction for point in module._POINTS)
