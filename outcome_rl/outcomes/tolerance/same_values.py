"""Compare two formulas by their values, once numbers are put for their variables."""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from outcome_rl.outcomes.canonical.arithmetic import Number, add, is_real, number_key
from outcome_rl.outcomes.canonical.evaluate import Evaluator
from outcome_rl.outcomes.canonical.lexer import (
    SERIES,
    Incomparable,
    NotUnderstood,
    Token,
    Tokens,
    closing,
    names_of,
    tokenize,
)
from outcome_rl.outcomes.canonical.parser import parse_expression
from outcome_rl.outcomes.canonical.trees import nodes, with_value

MAX_VARIABLES = 3
MIN_VALUES = 6
INTEGERS = frozenset("kmnMN")
"""Letters that stand for whole numbers."""

MAX_DIGITS = 4
"""Formulas with longer numbers are not compared: they may change beyond the points."""

# The last ones are one below numbers with many divisors.
_WHOLE = (*range(1, 12), -1, -2, -31, 20, 1234, 99991, 720719, 232792559)
# Of many denominators: at multiples of 1/12 all of these are 0: sin(12 pi x), sin(120 pi x), ...
_REALS = [
    *(Fraction(4, 11), Fraction(5, 13), Fraction(-6, 17), Fraction(18, 7), Fraction(28, 19), Fraction(-27, 23)),
    *(Fraction(60, 7), Fraction(66, 29), Fraction(-10, 13), Fraction(156, 11), Fraction(2, 31), Fraction(-9, 17)),
    *(Fraction(11, 13), Fraction(240, 19), Fraction(6006, 23), Fraction(-6006, 23), Fraction(3, 37), Fraction(-5, 41)),
    Fraction(20, 43),
]
_PIECES = frozenset(("abs", "sign", "floor", "ceil", "max", "min"))
_TWO_VALUES = frozenset((r"\pm", r"\mp"))
_CONSTANTS = frozenset("ei")
_LOGARITHMS = frozenset((r"\ln", r"\log", r"\lg"))
_BELOW = Token("symbol", "_")
_PLUS_CONSTANT = re.compile(r"(.*[^-+*/^_({])\+[CcK]")
_OF_INTEGRATION = frozenset("xyztusrvw")


def same_values(gold: str, answer: str) -> bool:
    r"""Return whether two formulas have the same values at `MIN_VALUES` or more numbers, and other ones at none.

    Variables of `INTEGERS` are whole numbers: `\lceil \frac n2 \rceil` and `\lfloor \frac{n+1}2 \rfloor` agree. Others
    are real, and their formulas may not join pieces (`|x|`), which a few numbers do not separate; both have to be
    defined at the same numbers. Antiderivatives, both with `+ C`, may differ by a constant, and join pieces.

    Args:
        gold, answer: plain LaTeX.
    """
    primitives = [_PLUS_CONSTANT.fullmatch(text) for text in (gold, answer)]
    try:
        if primitives[0] is not None and primitives[1] is not None:
            sides = [tokenize(one[1]) for one in primitives if one is not None]
            if len(names := variables_of(sides[0])) == 1 and names <= _OF_INTEGRATION:
                return _differ_by_a_constant(*sides)
        return _agree(tokenize(gold), tokenize(answer))
    except Incomparable:  # too long
        return False


def _agree(gold: Tokens, answer: Tokens) -> bool:
    are_integers = INTEGERS.issuperset(variables_of(gold))
    found = []
    for at in _points(gold, answer):
        values = value_of(gold, at, pieces=are_integers), value_of(answer, at, pieces=are_integers)
        if None in values:
            if values[0] != values[1] and not are_integers:  # a product from k = 2 has no value at n = 1
                return False
        elif number_key(values[0]) != number_key(values[1]):
            return False
        else:
            found.append(values[0])
    return len(found) >= MIN_VALUES and len(set(found)) > 1  # they may be constant only where they were compared


def _differ_by_a_constant(gold: Tokens, answer: Tokens) -> bool:
    differences = []
    for at in _points(gold, answer):
        one, other = value_of(gold, at, pieces=True), value_of(answer, at, pieces=True)
        if one is not None and other is not None:
            try:
                differences.append(number_key(add(one, -other)))
            except Incomparable:  # they cancel to less than 77 digits
                continue
    return len(differences) >= MIN_VALUES and len(set(differences)) == 1


def variables_of(tokens: Tokens) -> set[str]:
    """Return the names of the variables."""
    return names_of(tokens) - _CONSTANTS


def _points(gold: Tokens, answer: Tokens) -> Iterator[dict[str, Fraction]]:
    """Yield numbers for the variables; none if the two have other ones, too many, or large numbers."""
    names = variables_of(gold)
    if names != variables_of(answer) or not 0 < len(names) <= MAX_VARIABLES:
        return
    if any(token.kind == "number" and len(token.text) > MAX_DIGITS for token in (*gold, *answer)):
        return
    # What stands in a logarithm is positive: `2 \ln x` and `\ln x^2` are one function there.
    are_positive = any(token.text in _LOGARITHMS for token in (*gold, *answer))
    for i in range(len(_REALS)):
        yield {
            name: Fraction(_WHOLE[i] + j * (i % 3 + 1)) if name in INTEGERS else _real(i + 3 * j, are_positive)
            for j, name in enumerate(sorted(names))
        }


def _real(i: int, is_positive: bool) -> Fraction:
    real = _REALS[i % len(_REALS)]
    return abs(real) + Fraction(i, 1000) if is_positive else real


def value_of(tokens: Tokens, at: Mapping[str, Fraction], *, pieces: bool) -> Number | None:
    """Return the value of a formula if it is a real number; `pieces` is whether it may join several formulas."""
    if any(token.text in _TWO_VALUES for token in tokens):
        return None
    try:
        tree = parse_expression(_with_bounds(tokens, at))
        if not pieces and any(node[0] == "call" and node[1] in _PIECES for node in nodes(tree)):
            return None
        for name, number in at.items():
            tree = with_value(tree, name, ("number", number))
        value = Evaluator().number(tree)
    except (NotUnderstood, Incomparable):
        return None
    return value if is_real(value) else None


def _with_bounds(tokens: Tokens, at: Mapping[str, Fraction]) -> Tokens:
    """Put numbers for the upper bounds of sums and products, which the grammar reads only if they are numbers."""
    tokens = list(tokens)
    for i in range(len(tokens)):
        if tokens[i].text in SERIES and tokens[i + 1 : i + 2] == [_BELOW]:
            bound = closing(tokens, i + 2) + 2
            if 1 < bound < len(tokens) and tokens[bound].text in at and tokens[bound - 1].text == "^":
                tokens[bound] = Token("number", str(at[tokens[bound].text]))
    return tokens
