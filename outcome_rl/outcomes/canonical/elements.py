"""Elements: the values of an answer, and what lists of them are together."""

from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from outcome_rl.outcomes.canonical import arithmetic, intervals
from outcome_rl.outcomes.canonical.arithmetic import Number
from outcome_rl.outcomes.canonical.intervals import INFINITY, RealSet, list_key, set_key
from outcome_rl.outcomes.canonical.lexer import NotUnderstood

OR, AND = frozenset(("or", r"\lor", r"\vee")), frozenset(("and", r"\land", r"\wedge"))
_INTEGER_DOMAINS = ("Z", "N", "Z^+", "N^+", "N^*", "Z_+", "N_+")


class Element(NamedTuple):
    """One value of an answer."""

    key: str
    label: str | None = None  # `x` of `x = 5`
    numbers: RealSet | None = None  # that it stands for, if any
    progression: str | None = None  # key of the set of its values, if it is a rational linear function of any integer


def number_element(value: Number) -> Element:
    return Element(arithmetic.number_key(value), numbers=intervals.point(value) if arithmetic.is_real(value) else None)


def point_of(numbers: RealSet | None) -> Number | None:
    return numbers[0].low if numbers is not None and len(numbers) == 1 and intervals.is_point(numbers[0]) else None


def set_of(elements: Iterable[Element]) -> Element:
    """Return the set of these values, without duplicates."""
    elements = list(elements)
    points = [element.numbers for element in elements if point_of(element.numbers) is not None]
    numbers = intervals.union(one for one in points if one is not None) if len(points) == len(elements) else None
    return Element(list_key(list({element.key for element in elements})), numbers=numbers)


def braced_key(elements: list[Element]) -> str:
    """Return the key of a set in a set: in braces, whatever it holds."""
    return f"{{{';'.join(sorted({element.key for element in elements}))}}}"


def tuple_key(opening: str, keys: Iterable[str], closing: str) -> str:
    return f"{opening}{';'.join(keys)}{closing}"


def joined(elements: list[Element], joints: frozenset[str], *, are_conditions: bool) -> list[Element]:
    """Combine items joined by `and` or `or`: conditions to one set, values to a list."""
    sets = [element.numbers for element in elements if element.numbers is not None]
    label, *labels = [element.label for element in elements]
    one_name = set(labels) in ({label}, {None})  # `x = 1 or 2`
    is_said_in_words = joints <= frozenset(("and", "or"))
    if one_name and len(sets) == len(elements) > 1 and are_conditions:
        if joints <= OR:
            return [Element(set_key(intervals.union(sets)), label, intervals.union(sets))]
        both = intervals.intersection(sets)
        # `x < 1 and x > 3` may mean either: as a list it is itself
        return [Element(set_key(both), label, both)] if both or not is_said_in_words else elements
    if not is_said_in_words:
        raise NotUnderstood("logic")
    if joints <= OR and not (one_name and (label is not None or len(sets) == len(elements))):
        raise NotUnderstood("one of several things")
    return elements


def in_a_row(elements: list[Element]) -> list[Element]:
    """Return one set for conditions behind commas where only one of "and", "or" makes sense: `x < 3, x > 5`."""
    sets = [element.numbers for element in elements if element.numbers is not None]
    if len({element.label for element in elements}) > 1 or len(sets) < len(elements):
        return elements
    both, either = intervals.intersection(sets), intervals.union(sets)
    if both and either != intervals.REALS:
        return elements
    return [Element(set_key(both or either), elements[0].label, both or either)]


def within(domain: str, element: Element) -> Element:
    """Return the part of a set of real numbers that lies in a domain; of integers within bounds, they themselves."""
    if not domain:
        return element
    numbers = element.numbers
    if numbers is not None and domain in _INTEGER_DOMAINS:
        if domain != "Z":  # N may or may not contain 0: if it matters, the set gets a separate key
            zero = Fraction(0)
            numbers = intervals.intersection((numbers, intervals.interval(zero, domain == "N", INFINITY, False)))
            domain = "N" if intervals.intersection((numbers, intervals.point(zero))) else "Z"
        numbers = intervals.integers(numbers)
        if domain == "Z" and all(intervals.is_point(part) for part in numbers):
            return Element(set_key(numbers), element.label, numbers)
    return Element(f"in {domain}:{element.key if numbers is None else set_key(numbers)}", element.label)
