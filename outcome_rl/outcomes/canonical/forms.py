r"""The canonical form of an answer that is mathematics: of a number, a formula, a list, a set, a relation.

An answer is split at the commas, `and`, `or` and relation signs outside of its brackets; the parts between them are
expressions, keyed by `evaluate`. Equivalent notations share a key:

- `x = 5` is 5, `f(x) = x + 1` is x + 1, an identity `2 + 2 = 4` is its side; other equations are alike up to a factor;
- a list in any order is a set: `3, 1` is `\{1, 3\}`, and `1 \pm \sqrt2` is `1 - \sqrt2, 1 + \sqrt2`;
- values with different labels are a tuple in the order of the labels, a Greek letter last: `y = 2, x = 1` is `(1, 2)`;
  words and Greek letters have no order, and stay: `\text{Dogs} = 2, \text{Cats} = 1` is neither `(1, 2)` nor `(2, 1)`;
- a linear condition on one variable is the set of its solutions: `-x \geq -1`, `x \in (-\infty, 1]` and `x \leq 1`.
"""

import re

from outcome_rl.outcomes.canonical import intervals
from outcome_rl.outcomes.canonical.evaluate import Evaluator
from outcome_rl.outcomes.canonical.intervals import list_key, set_key
from outcome_rl.outcomes.canonical.labels import is_labelled, place_of_label
from outcome_rl.outcomes.canonical.lexer import (
    Incomparable,
    NotUnderstood,
    Tokens,
    positions,
    split,
    tokenize,
    trimmed,
    units_in,
)
from outcome_rl.outcomes.canonical.statements import FLIPPED, RELATIONS, Element, read_item, tuple_key

_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]*[a-z]{2}")
_STRUCTURE = re.compile(  # of matrices and sets, derivatives, divisors; `\pi(x)` counts primes
    r"[A-Z]\^(?:T|\{-1\})[A-Z]|[A-Z][A-Z]\^(?:T|\{-1\})|(?<![A-Za-z])[A-Z]\\times [A-Z](?![A-Za-z])"
    r"|[A-Za-z]\^(?:\{\([^()]*\)\}|\([0-9]+\))|[A-Za-z0-9]\|[A-Za-z0-9]\|[A-Za-z]|\\pi\([a-z]\)"
)
_JOINTS = frozenset(("and", "or"))
_SEPARATORS = frozenset((",", ";")) | _JOINTS
INTEGER_NAMES = frozenset("kmn")  # `k \pi` and `n \pi` are one, as k stands for any integer


def mathematical_form(plain: str) -> str:
    """Return the canonical form of plain LaTeX.

    Raises:
        NotUnderstood: it is outside the grammar; `Words` if it is prose.
        Incomparable: it is ambiguous or in pieces; `TooLarge` if it exceeds a bound on length, depth, digits or work.
    """
    if _STRUCTURE.search(plain):
        raise Incomparable("an order or a structure that a product of numbers lacks")
    tokens = tokenize(plain)
    integers = {token.text for token in tokens if token.text in INTEGER_NAMES and token.kind == "name"}
    integer = min(integers) if len(integers) == 1 else None
    if _SEPARATORS.isdisjoint(token.text for token in tokens):  # most answers
        return _combined([trimmed(tokens)], integer)
    joints = {tokens[i].text for i in positions(tokens, _JOINTS)}
    if len(joints) > 1:
        raise NotUnderstood("both and, or")
    groups = [list(split(group, (",",))) for group in split(tokens, (";", "and", "or"))]
    if len(groups) > 1 and all(len(group) > 1 and all(map(is_labelled, group)) for group in groups):
        return list_key([_combined(group, integer) for group in groups])
    return _combined(list(split(tokens, _SEPARATORS)), integer, next(iter(joints), ""))


def _combined(items: list[Tokens], integer: str | None, joint: str = "") -> str:
    """Return one form for the items of a list; `joint` is the word between them."""
    items = [item for item in items if item]
    if not items:
        raise NotUnderstood("an empty list")
    evaluator = Evaluator()
    is_alone = len(items) == 1
    elements = [element for item in items for element in read_item(item, evaluator, integer, is_alone=is_alone)]
    if is_alone and not joint:  # most answers
        return list_key([element.key for element in elements])
    are_conditions = all(positions(item, RELATIONS) for item in items)
    if any(positions(item, FLIPPED) for item in items) and not are_conditions:
        raise NotUnderstood("a value and a condition")
    if len(items) > 1 and len(set().union(*map(units_in, items))) > 1:
        raise Incomparable("quantities in several units")  # they say what each number is: `5 feet, 6 inches`
    if joint:
        elements = _joined(elements, joint, are_conditions)
    labels = [element.label or "" for element in elements]
    are_labelled = len(elements) == len(items) and all(labels)
    if len(set(labels) - {""}) > 1 and not are_labelled:
        raise NotUnderstood("names of some values, or of several")  # `x = \pm 1, y = \pm 2`
    if not are_labelled or len(set(labels)) == 1:
        return list_key([element.key for element in elements])
    if len({label.partition("_")[0] for label in labels}) < len(labels):
        raise NotUnderstood("a label twice, or numbered ones")  # `x_1 = 2, x_2 = 1`: two roots, or a pair
    if any(map(_WORD.search, labels)) or sum(label.startswith("\\") for label in labels) > 1:
        named = zip(labels, elements, strict=True)
        return list_key([f"{label.casefold().replace(' ', '')}={element.key}" for label, element in named])
    by_label = dict(zip(labels, elements, strict=True))
    return tuple_key("(", [by_label[label].key for label in sorted(labels, key=place_of_label)], ")")


def _joined(elements: list[Element], joint: str, are_conditions: bool) -> list[Element]:
    """Combine items joined by `and` or `or`: conditions on one name to one set, values to a list."""
    if joint == "or" and len({element.key for element in elements}) == 1:  # a restatement: `3/4 or 0.75`
        return elements[:1]
    sets = [element.numbers for element in elements if element.numbers is not None]
    label, *labels = [element.label for element in elements]
    has_one_name = set(labels) in ({label}, {None})  # `x = 1 or 2`
    if are_conditions and has_one_name and len(sets) == len(elements) > 1:
        numbers = (intervals.union if joint == "or" else intervals.intersection)(sets)
        # `x < 1 and x > 3` may mean either: as a list it is itself
        return [Element(set_key(numbers), label, numbers)] if numbers else elements
    if joint == "or" and are_conditions and len({one.label is None for one in elements}) > 1:  # `x = 1 or y = 2x`
        return [one._replace(key=f"{one.label}={one.key}" if one.label else one.key, label=None) for one in elements]
    if joint == "or" and not (has_one_name and (label is not None or len(sets) == len(elements))):
        raise NotUnderstood("one of several things")
    return elements
