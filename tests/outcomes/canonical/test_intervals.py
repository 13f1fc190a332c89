"""Sets of reals against membership on a grid that holds every end and a point between any two."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl.outcomes.canonical.intervals import (
    INFINITY,
    REALS,
    RealSet,
    complement,
    intersection,
    interval,
    list_key,
    point,
    set_key,
    union,
)

GRID = [Fraction(i, 2) for i in range(-11, 12)]
ENDS = st.integers(-5, 5).map(Fraction) | st.just(INFINITY) | st.just(-INFINITY)
INTERVALS = st.builds(interval, ENDS, st.booleans(), ENDS, st.booleans())
SETS = st.lists(INTERVALS, max_size=4).map(union)


def members(one: RealSet) -> list[bool]:
    return [
        any(
            (part.low < x or (part.low == x and part.has_low)) and (x < part.high or (x == part.high and part.has_high))
            for part in one
        )
        for x in GRID
    ]


@given(SETS, SETS)
def test_operations_are_those_of_sets(a: RealSet, b: RealSet) -> None:
    assert members(union((a, b))) == [x or y for x, y in zip(members(a), members(b), strict=True)]
    assert members(intersection((a, b))) == [x and y for x, y in zip(members(a), members(b), strict=True)]
    assert members(complement(a)) == [not x for x in members(a)]


@given(SETS, SETS)
def test_sets_have_one_key_exactly_if_they_have_the_same_members(a: RealSet, b: RealSet) -> None:
    assert (set_key(a) == set_key(b)) == (members(a) == members(b))


@given(st.lists(INTERVALS, max_size=4), st.randoms())
def test_the_order_of_a_union_does_not_matter(parts: list[RealSet], rng) -> None:
    shuffled = rng.sample(parts, len(parts))
    assert union(parts) == union(shuffled)


@pytest.mark.parametrize(
    ("one", "key"),
    [
        ((), "{}"),
        (point(Fraction(1, 2)), "q:1/2"),
        (union((point(Fraction(2)), point(Fraction(1)))), "{q:1/1;q:2/1}"),
        (REALS, "(-inf;inf)"),
        (interval(-INFINITY, True, Fraction(3), True), "(-inf;q:3/1]"),
    ],
)
def test_keys(one: RealSet, key: str) -> None:
    assert set_key(one) == key


def test_a_list_of_one_is_itself() -> None:
    assert list_key(["a"]) == "a"
    assert list_key(["b", "a"]) == list_key(["a", "b"]) == "{a;b}"
