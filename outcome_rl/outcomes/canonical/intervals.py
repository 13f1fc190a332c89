"""Sets of real numbers as unions of disjoint intervals, with one key for each set.

The ends are numbers of `arithmetic` or the floats `inf` and `-inf`; a point is an interval whose ends are equal.
"""

from collections.abc import Iterable
from functools import cmp_to_key
from typing import NamedTuple

from outcome_rl.outcomes.canonical.arithmetic import Number, compare, number_key

INFINITY = float("inf")


class Interval(NamedTuple):
    """The numbers between two ends, with or without each of them."""

    low: Number
    has_low: bool
    high: Number
    has_high: bool


RealSet = tuple[Interval, ...]
"""Disjoint intervals in ascending order, no two of which could be one."""

REALS: RealSet = (Interval(-INFINITY, False, INFINITY, False),)


def point(value: Number) -> RealSet:
    return (Interval(value, True, value, True),)


def interval(low: Number, has_low: bool, high: Number, has_high: bool) -> RealSet:
    """Return the interval as a set; empty if its ends leave nothing."""
    has_low, has_high = has_low and low != -INFINITY, has_high and high != INFINITY
    order = compare(low, high)
    return (Interval(low, has_low, high, has_high),) if order < 0 or (order == 0 and has_low and has_high) else ()


def union(sets: Iterable[RealSet]) -> RealSet:
    intervals = sorted((part for one in sets for part in one), key=cmp_to_key(_starts_before))
    merged: list[Interval] = []
    for part in intervals:
        if not merged or not _touch(merged[-1], part):
            merged.append(part)
            continue
        last = merged.pop()
        order = compare(last.high, part.high)
        high, has_high = (part.high, part.has_high) if order < 0 else (last.high, last.has_high)
        merged.append(Interval(last.low, last.has_low, high, has_high or (order == 0 and part.has_high)))
    return tuple(merged)


def complement(one: RealSet) -> RealSet:
    gaps: list[RealSet] = []
    low, has_low = -INFINITY, False
    for part in one:
        gaps.append(interval(low, has_low, part.low, not part.has_low))
        low, has_low = part.high, not part.has_high
    gaps.append(interval(low, has_low, INFINITY, False))
    return tuple(part for gap in gaps for part in gap)


def intersection(sets: Iterable[RealSet]) -> RealSet:
    return complement(union(map(complement, sets)))


def is_point(part: Interval) -> bool:
    return part.has_low and part.has_high and compare(part.low, part.high) == 0


def set_key(one: RealSet) -> str:
    """Return the key: an interval's is that of its brackets and ends, a point's that of the number."""
    keys = [number_key(part.low) if is_point(part) else _key(part) for part in one]
    return list_key(keys) if all(map(is_point, one)) else list_key(keys, "U")


def list_key(keys: list[str], tag: str = "") -> str:
    """Return the key of values in any order; a single one is itself."""
    return keys[0] if len(keys) == 1 else f"{tag}{{{';'.join(sorted(keys))}}}"


def end_key(value: Number) -> str:
    return ("inf" if value > 0 else "-inf") if isinstance(value, float) else number_key(value)


def _key(part: Interval) -> str:
    return f"{'[' if part.has_low else '('}{end_key(part.low)};{end_key(part.high)}{']' if part.has_high else ')'}"


def _starts_before(a: Interval, b: Interval) -> int:
    return compare(a.low, b.low) or b.has_low - a.has_low


def _touch(a: Interval, b: Interval) -> bool:
    """Whether b, which starts no earlier than a, overlaps or continues it."""
    order = compare(b.low, a.high)
    return order < 0 or (order == 0 and (a.has_high or b.has_low))
