"""Arithmetic expressions as outcomes: a parser over exact fractions, and a form that ignores the order of operands.

    one = parse("(50 - 8) * 3 + 2")
    one.value == 128, one.numbers == (2, 3, 8, 50), one.form == "(50-8)*3+2"

Nothing is evaluated as code, and no text takes more than milliseconds: numbers are whole, operators are + - * / and
parentheses, and length and depth are bounded. Two expressions have one form if they differ only in the order and the
grouping of sums and products, in signs (a-(b-c) is a-b+c, (a-b)*(c-d) is (b-a)*(d-c)) or in divisions (a/(b/c) is
a*c/b). The form is an expression with the same value, so expressions of different values have different forms.
"""

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

MAX_CHARS = 400
MAX_DEPTH = 40

# A node is ("n", number), ("s", ((sign, node), ...)) or ("p", ((exponent, node), ...)), signs and exponents +1 or -1,
# parts sorted, and no sum directly in a sum, no product in a product. A term is a sign and a node.
_Node = tuple[str, Any]
_Term = tuple[int, _Node]

_SPELLINGS = {
    "×": "*", "·": "*", "⋅": "*", "∗": "*", "÷": "/", "∕": "/", "−": "-", "–": "-",
    "\\times": "*", "\\cdot": "*", "\\div": "/", "\\left": "", "\\right": "", "\\,": "",
}  # fmt: skip
_SPELLING = re.compile(r"\\[A-Za-z]+|\\,|[×·⋅∗÷∕−–]")
_TOKEN = re.compile(r"[0-9]+|[-+*/()]")
_END = ""


class Expression(NamedTuple):
    """An expression: its exact value, its numbers in ascending order, and its form, see the module."""

    value: Fraction
    numbers: tuple[int, ...]
    form: str


def parse(text: str) -> Expression:
    """Read an arithmetic expression of whole numbers, + - * / and parentheses, also in LaTeX's or printed signs.

    Raises:
        ValueError: the text is no such expression, divides by zero, or is longer or deeper than is allowed.
    """
    if len(text) > MAX_CHARS:
        raise ValueError(f"an expression may have {MAX_CHARS} characters; got {len(text)}")
    text = _SPELLING.sub(lambda match: _SPELLINGS.get(match[0], match[0]), text.strip().strip("$"))
    found = _TOKEN.findall(text)
    if "".join(found) != "".join(text.split()):
        raise ValueError(f"only whole numbers, + - * / and parentheses are read; got {text!r}")
    tokens = [_END, *reversed(found)]
    term, value = _sum(tokens, 0)
    if tokens != [_END]:
        raise ValueError(f"an operator was expected before {tokens[-1]!r}")
    return Expression(value, tuple(sorted(_numbers(term[1]))), _written(term))


def _sum(tokens: list[str], depth: int) -> tuple[_Term, Fraction]:
    """Read a sum from a stack of tokens; return its term and its value, as `_product` and `_factor` do of theirs."""
    if depth > MAX_DEPTH:
        raise ValueError(f"parentheses and signs may be {MAX_DEPTH} deep")
    term, total = _product(tokens, depth)
    terms = [term]
    while tokens[-1] in ("+", "-"):
        sign = 1 if tokens.pop() == "+" else -1
        (own, node), value = _product(tokens, depth)
        terms.append((sign * own, node))
        total += sign * value
    return _sum_of(terms), total


def _product(tokens: list[str], depth: int) -> tuple[_Term, Fraction]:
    term, total = _factor(tokens, depth)
    factors = [(1, term)]
    while tokens[-1] in ("*", "/"):
        exponent = 1 if tokens.pop() == "*" else -1
        term, value = _factor(tokens, depth)
        if exponent < 0 and not value:
            raise ValueError("a division by zero")
        factors.append((exponent, term))
        total = total * value if exponent > 0 else total / value
    return _product_of(factors), total


def _factor(tokens: list[str], depth: int) -> tuple[_Term, Fraction]:
    token = tokens.pop()
    if token == "(":
        inside = _sum(tokens, depth + 1)
        if tokens.pop() != ")":
            raise ValueError("a closing parenthesis was expected")
        return inside
    if token in ("+", "-"):
        if depth > MAX_DEPTH:
            raise ValueError(f"parentheses and signs may be {MAX_DEPTH} deep")
        (sign, node), value = _factor(tokens, depth + 1)
        return ((sign, node), value) if token == "+" else (_signed(-sign, node), -value)
    if not token.isdigit():
        raise ValueError(f"a number or an opening parenthesis was expected; got {token!r}")
    return (1, ("n", int(token))), Fraction(int(token))


def _signed(sign: int, node: _Node) -> _Term:
    return (1, node) if _is_own_negative(node) else (sign, node)


def _is_own_negative(node: _Node) -> bool:
    """Whether a node is zero by its form: 0, a sum such as a-a, whose negative has the same parts, or a multiple."""
    kind, parts = node
    if kind == "p":
        return any(_is_own_negative(factor) for _, factor in parts)
    return bool(parts == (0 if kind == "n" else _negative(parts)))


def _negative(parts: Iterable[_Term]) -> tuple[_Term, ...]:
    return tuple(sorted(_signed(-sign, node) for sign, node in parts))


def _sum_of(terms: list[_Term]) -> _Term:
    """Flatten, sort, and choose one of a sum and its negative."""
    if len(terms) == 1:
        return terms[0]
    flat: list[_Term] = []
    for sign, (kind, parts) in terms:
        flat += [_signed(sign * own, node) for own, node in parts] if kind == "s" else [_signed(sign, (kind, parts))]
    parts = tuple(sorted(flat))
    negative = _negative(parts)
    return (1, ("s", parts)) if _by_node(parts) >= _by_node(negative) else (-1, ("s", negative))


def _by_node(parts: Iterable[_Term]) -> list[tuple[_Node, int]]:
    return sorted(((node, sign) for sign, node in parts), reverse=True)  # so that the last part is positive


def _product_of(factors: list[tuple[int, _Term]]) -> _Term:
    """Flatten and sort, with the signs of the factors before the product."""
    if len(factors) == 1:
        return factors[0][1]
    sign = 1
    flat: list[tuple[int, _Node]] = []
    for exponent, (own, (kind, parts)) in factors:
        sign *= own
        flat += [(exponent * inner, node) for inner, node in parts] if kind == "p" else [(exponent, (kind, parts))]
    return _signed(sign, ("p", tuple(sorted(flat))))


def _numbers(node: _Node) -> Iterator[int]:
    kind, parts = node
    if kind == "n":
        yield parts
    else:
        for _, inner in parts:
            yield from _numbers(inner)


def _written(term: _Term) -> str:
    """Write a term as an expression, which has this form again."""
    sign, (kind, parts) = term
    if kind == "s":
        written = [("+" if sign * own > 0 else "-", _written((1, node))) for own, node in parts]
        written.sort()  # "+" is before "-"
        return "".join(sign + text for sign, text in written).removeprefix("+")
    if kind == "n":
        return f"-{parts}" if sign < 0 else str(parts)
    written = [("*" if exponent > 0 else "/", _enclosed(node)) for exponent, node in parts]
    written.sort()  # "*" is before "/"
    return ("-" if sign < 0 else "") + "".join(sign + text for sign, text in written).removeprefix("*")


def _enclosed(node: _Node) -> str:
    return f"({_written((1, node))})" if node[0] == "s" else _written((1, node))
