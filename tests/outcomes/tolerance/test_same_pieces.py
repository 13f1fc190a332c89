"""Functions in pieces."""

from itertools import permutations

import pytest

from outcome_rl.outcomes.keys import plain_text
from outcome_rl.outcomes.tolerance.same_pieces import same_pieces

ROWS = ("x^2 & x > 1", r"x & -1 \leq x \leq 1", r"-x & \text{if } x < -1")


def cases(rows: tuple[str, ...], label: str = "f(x) = ") -> str:
    body = r" \\ ".join(rows)
    return plain_text(rf"{label}\begin{{cases}} {body} \end{{cases}}")


@pytest.mark.parametrize("rows", [*permutations(ROWS)])
def test_pieces_may_come_in_any_order(rows: tuple[str, ...]) -> None:
    assert same_pieces(cases(ROWS), cases(rows, ""))


@pytest.mark.parametrize(
    "rows",
    [
        ROWS[:2],
        (*ROWS[:2], "-x & x < 1"),
        (*ROWS[:2], "x & x < -1"),
        ("x & x > 1", r"x^2 & -1 \leq x \leq 1", ROWS[2]),  # values of other pieces
        ("x^2", "x", "-x"),
    ],
)
def test_other_functions(rows: tuple[str, ...]) -> None:
    assert not same_pieces(cases(ROWS), cases(rows))
    assert not same_pieces(cases(rows), plain_text("x^2"))
