r"""The canonical form of an answer that is mathematics: of a number, a formula, a list, a set, a relation.

An answer is split at the commas, `and`, `or` and relation signs outside of its brackets; the parts between them are
expressions, keyed by `evaluate`. Equivalent notations share a key:

- `x = 5` is 5, `f(x) = x + 1` is x + 1, an identity `2 + 2 = 4` is its side; other equations are alike up to a factor;
- a list in any order is a set: `3, 1` is `\{1, 3\}`, and `1 \pm \sqrt2` is `1 - \sqrt2, 1 + \sqrt2`;
- values with different labels are a tuple in the order of the labels, a Greek letter last: `y = 2, x = 1` is `(1, 2)`;
  words and Greek letters have no order, and stay: `\text{Dogs} = 2, \text{Cats} = 1` is neither `(1, 2)` nor `(2, 1)`;
- a condition on one variable is the set of its solutions: `-x \geq -1`, `x \in (-\infty, 1]` and `x \leq 1` are one;
  so are `x^2 < 4` and `(-2, 2)`, `x^2 = 4` and `\pm 2`.
"""

import re

from outcome_rl.outcomes.canonical.elements import AND, OR, in_a_row, joined, tuple_key, within
from outcome_rl.outcomes.canonical.evaluate import Evaluator
from outcome_rl.outcomes.canonical.intervals import list_key
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
from outcome_rl.outcomes.canonical.lhs import ELEMENT, EQUAL, domain_of, is_declaration, is_labelled, place_of_label
from outcome_rl.outcomes.canonical.statements import FLIPPED, Parameter, read_item

_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]*[a-z]{2}")
_LEADING_ZERO = re.compile("0[0-9]")
_ORDERS = frozenset(FLIPPED)
_JOINTS = OR | AND
_SEPARATORS = frozenset((",", ";")) | _JOINTS
PARAMETER_NAMES = frozenset("kmn")  # `k \pi` and `n \pi` are one, as k stands for any integer


def mathematical_form(plain: str) -> str:
    """Return the canonical form of plain LaTeX.

    Raises:
        NotUnderstood: it is outside the grammar; `Words` if it is prose.
        Incomparable: it is ambiguous or in pieces; `TooLarge` if it exceeds a bound on length, depth, digits or work.
    """
    tokens = tokenize(plain)
    parameter = _undeclared_integer(tokens)
    if _SEPARATORS.isdisjoint(token.text for token in tokens):  # most answers
        return _combined(list(split(tokens, ())), parameter)
    for before, comma, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if before.kind == after.kind == "number" and comma.text == "," and _LEADING_ZERO.match(after.text):
            raise Incomparable("a decimal comma, or groups of digits")  # `1,05`
    joints = frozenset(tokens[i].text for i in positions(tokens, _JOINTS))
    if joints & OR and joints & AND:
        raise NotUnderstood("both and, or")
    groups = [list(split(group, (",",))) for group in split(tokens, (";", "and", "or"))]
    if len(groups) > 1 and all(len(group) > 1 and all(map(is_labelled, group)) for group in groups):
        return list_key([_combined(group, parameter) for group in groups])
    return _combined(list(split(tokens, _SEPARATORS)), parameter, joints)


def _undeclared_integer(tokens: Tokens) -> Parameter | None:
    """Return the k of `k \\pi`, which stands for any integer, if there is one such letter."""
    names = {token.text for token in tokens if token.text in PARAMETER_NAMES and token.kind == "name"}
    return Parameter(names.pop(), "Z", False) if len(names) == 1 else None


def _combined(items: list[Tokens], parameter: Parameter | None, joints: frozenset[str] = frozenset()) -> str:
    """Return one form for the items of a list; `joints` are the words between them."""
    if joints and not (items[0] and items[-1]):
        raise NotUnderstood("the beginning or the end of a list")
    items = _with_modulus([item for item in items if item])
    declared = [item for item in items if is_declaration(item)] if len(items) > 1 else []
    items = [item for item in items if item not in declared] or items  # `2k + 1, k \in \mathbb{Z}`
    if not items:
        raise NotUnderstood("an empty list")
    if declared:
        parameter = _declared(declared, items)
    evaluator = Evaluator()
    parts = [read_item(item, evaluator, parameter, is_alone=len(items) == 1) for item in items]
    elements = [element for part in parts for element in part]
    conditions = [not _ORDERS.isdisjoint(token.text for token in item) for item in items]
    if any(conditions) and not all(map(_is_condition, items)):
        raise NotUnderstood("a value and a condition")
    if joints:
        elements = joined(elements, joints, are_conditions=all(map(_is_condition, items)))
    elif all(conditions) and not declared:
        elements = in_a_row(elements)
    if declared and any(conditions):  # `x > 5, x \in \mathbb{Z}` is no interval
        if len(elements) > 1:
            raise NotUnderstood("several conditions on a domain")
        elements = [within(domain_of(declared[0]), elements[0])]
    elif declared and not any("over " in element.key for element in elements):
        raise NotUnderstood("a domain without a variable")
    units = [units_in(item) for item in items]
    if len(items) > 1 and len(set().union(*units)) > 1:  # they say what each number is: `5 feet, 6 inches`
        if len(elements) < len(items) or max(map(len, units)) > 1:
            raise Incomparable("quantities in several units")
        return list_key([f"{''.join(unit)}={one.key}" for unit, one in zip(units, elements, strict=True)])
    labels = [element.label or "" for element in elements]
    if len(set(labels) - {""}) > 1 and not (len(elements) == len(items) and all(labels)):
        raise NotUnderstood("names of some values, or of several")  # `x = \pm 1, y = \pm 2`
    if len(elements) == len(items) > 1 and all(labels) and len(set(labels)) > 1:
        if len({label.partition("_")[0] for label in labels}) < len(labels):
            raise NotUnderstood("a label twice, or numbered ones")  # `x_1 = 2, x_2 = 1`: two roots, or a pair
        if any(map(_WORD.search, labels)) or sum(label.startswith("\\") for label in labels) > 1:
            named = zip(labels, elements, strict=True)
            return list_key([f"{label.casefold().replace(' ', '')}={element.key}" for label, element in named])
        return tuple_key(
            "(", [element.key for element in sorted(elements, key=lambda e: place_of_label(e.label or ""))], ")"
        )
    if len(elements) == 1 or (joints and joints <= OR):  # behind a comma, `k, k + 1` may be pairs
        return list_key([element.progression or element.key for element in elements])
    return list_key([element.key for element in elements])


def _with_modulus(items: list[Tokens]) -> list[Tokens]:
    """Give every residue of `n \\equiv 0, 1 \\pmod 4` its modulus."""
    if len(items) < 2 or all(token.text != r"\equiv" for token in items[0]):
        return items
    at = [next((i for i, token in enumerate(item) if token.text == r"\pmod"), None) for item in items]
    if at[-1] is None or any(place is not None for place in at[:-1]):
        return items
    return [*([*item, *items[-1][at[-1] :]] for item in items[:-1]), items[-1]]


def _declared(declared: list[Tokens], items: list[Tokens]) -> Parameter:
    """Return the parameter that a list declares; another item has to contain it."""
    item = declared[0]
    at = next(i for i, token in enumerate(item) if token.text == ELEMENT)
    names = [token for token in trimmed(item[:at]) if token.kind != "space"]
    if len(declared) > 1 or len(names) != 1 or not any(names[0] in other for other in items):
        raise NotUnderstood("an ambiguous parameter")
    return Parameter(names[0].text, domain_of(item) or "R", True)


def _is_condition(item: Tokens) -> bool:
    return not _ORDERS.isdisjoint(token.text for token in item) or bool(positions(item, (EQUAL, ELEMENT)))
