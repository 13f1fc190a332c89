"""General solutions: the same set in other words, near misses, and an oracle on generated ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl.outcomes.keys import plain_text
from outcome_rl.outcomes.tolerance.same_families import same_families

Z = r", k \in \mathbb{Z}"


def same(gold: str, answer: str) -> bool:
    return same_families(plain_text(gold), plain_text(answer))


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (rf"x = \frac{{\pi}}{{4}} + k\pi{Z}", r"x = n\pi - \frac{3\pi}{4}"),
        (rf"x = \pm\frac{{\pi}}{{3}} + 2k\pi{Z}", r"\frac{\pi}{3} + 2\pi n \text{ or } \frac{5\pi}{3} + 2\pi n"),
        (rf"x = \frac{{k\pi}}{{2}}{Z}", r"x = n\pi, x = \frac{\pi}{2} + n\pi, n \in \mathbb{Z}"),
        (rf"30^\circ + 360^\circ k{Z}", r"390^\circ - 360^\circ n, n \in \mathbb{Z}"),
    ],
)
def test_the_same_values(gold: str, answer: str) -> None:
    assert same(gold, answer)
    assert same(answer, gold)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (rf"\frac{{\pi}}{{4}} + k\pi{Z}", rf"\frac{{\pi}}{{4}} + 2k\pi{Z}"),
        (rf"\frac{{\pi}}{{4}} + k\pi{Z}", rf"-\frac{{\pi}}{{4}} + k\pi{Z}"),
        (r"(n - 1)\pi", r"(n - 2)\pi"),  # formulas, for all that is said
        (rf"k\pi{Z}", rf"k^2\pi{Z}"),
        (rf"k\pi{Z}", rf"k{Z}"),
        (rf"k\pi + 1{Z}", rf"k\pi + 2{Z}"),
        (rf"k\pi{Z}", r"a\pi"),
        (rf"(k, k + 1){Z}", rf"(k, k + 2){Z}"),
        (Z, Z),
        ("", Z),
    ],
)
def test_other_values(gold: str, answer: str) -> None:
    assert not same(gold, answer)


families = st.lists(st.tuples(st.integers(1, 4), st.integers(-6, 6)), min_size=1, max_size=3)


@given(families, families, st.sampled_from([1, r"\pi", r"\sqrt{2}"]))
def test_lists_are_the_same_if_they_have_the_same_values(
    one: list[tuple[int, int]], other: list[tuple[int, int]], unit: object
) -> None:
    def text(every: list[tuple[int, int]]) -> str:
        return " or ".join(rf"({first}) \cdot {unit} + {step} k \cdot {unit}" for step, first in every)

    def values(every: list[tuple[int, int]]) -> set[int]:
        return {first % step + step * k for step, first in every for k in range(12)} & set(range(12))

    assert same(
        rf"{text(one)}{Z}".replace("or", r"\text{ or }"), rf"{text(other)}{Z}".replace("or", r"\text{ or }")
    ) == (values(one) == values(other))
