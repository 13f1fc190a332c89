r"""General solutions of differential equations: `C_1 e^x + C_2 e^{-x}` under other names, signs and orders."""

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outcome_rl.outcomes.canonical.arithmetic import number_key
from outcome_rl.outcomes.canonical.lexer import Incomparable, Token, Tokens, tokenize
from outcome_rl.outcomes.keys import real_number
from outcome_rl.outcomes.tolerance.same_values import value_of, variables_of

MAX_CONSTANTS = 3
_LABEL = re.compile(r"[a-z](?:\([a-z]\))?=(?P<value>[^=]+)")
_CONSTANTS = frozenset("CcKkAB")
_SPARE = "DJLMQRSUVW"  # letters that the grammar takes for no function
_POINTS = [Fraction(*point) for point in ((5, 13), (7, 11), (9, 14), (11, 17), (13, 12), (17, 9), (19, 8), (23, 15))]
_TOLERANCE = 1e-9
_SIZES = Fraction(17, 7), Fraction(34, 7)  # of constants: numbers that cancel no term of a formula


class Family(NamedTuple):
    """Values at the points: of the function whose constants are all 0, and of those that constants multiply."""

    variable: str
    particular: NDArray[np.float64]
    functions: NDArray[np.float64]  # a row for each constant


def same_solutions(gold: str, answer: str) -> bool:
    r"""Return whether two formulas in one variable that are linear in arbitrary constants take the same functions.

    The constants of the gold answer are C and c, with an index or without; the answer may call them A, B, K or k, too.
    Where the gold answer is a solution by name, `y = ...`, any other functions with the same span will do; else only
    names and order of the constants may differ, because C may be a quantity.

    Args:
        gold, answer: plain LaTeX.
    """
    try:
        one, other = _family(gold, frozenset("Cc")), _family(answer, _CONSTANTS)
    except Incomparable:
        return False
    if one is None or other is None or one.variable != other.variable or one.functions.shape != other.functions.shape:
        return False
    if _LABEL.fullmatch(gold) is None:
        orders = permutations(range(len(one.functions)))
        return _close(one.particular, other.particular) and any(
            _close(one.functions, other.functions[[*order]]) for order in orders
        )
    own, others, difference = map(_scaled, (one.functions, other.functions, (one.particular - other.particular)[None]))
    return all(
        np.linalg.matrix_rank(np.vstack(rows), tol=_TOLERANCE) == len(own)
        for rows in ([own], [others], [own, others], [own, difference])
    )


def _close(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    return np.allclose(a, b, rtol=_TOLERANCE, atol=_TOLERANCE)


def _scaled(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide each row by its largest entry."""
    largest: NDArray[np.float64] = np.maximum(np.abs(rows).max(axis=1, keepdims=True), _TOLERANCE)
    return rows / largest


def _family(text: str, allowed: frozenset[str]) -> Family | None:
    label = _LABEL.fullmatch(text)
    tokens, constants = _with_spare_names(tokenize(text if label is None else label["value"]), allowed)
    variables = variables_of(tokens) - set(constants)
    if not 0 < len(constants) <= MAX_CONSTANTS or len(variables) != 1:
        return None
    (variable,) = variables
    if not variable.islower():
        return None
    zeros = dict.fromkeys(constants, Fraction(0))
    particular = _values(tokens, variable, zeros)
    functions = []
    for name in constants:
        once, twice = (_values(tokens, variable, zeros | {name: size}) for size in _SIZES)
        if particular is None or once is None or twice is None:
            return None
        function = once - particular
        if not _close(twice - particular, 2 * function) or not function.any():
            return None
        functions.append(function / float(_SIZES[0]))
    return None if particular is None else Family(variable, particular, np.array(functions))


def _with_spare_names(tokens: Tokens, allowed: frozenset[str]) -> tuple[Tokens, Sequence[str]]:
    """Give every constant, such as `C` or `c_1`, one letter that the formula does not have; return these letters."""
    spare = (letter for letter in _SPARE if letter not in {token.text for token in tokens})
    names: dict[str, str] = {}
    found: list[Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token.kind == "name" and token.text in allowed:
            index = "".join(one.text for one in tokens[at : at + 4])
            length = 4 if re.match(r"_\{[0-9]\}", index) else 2 if re.match("_[0-9]", index) else 0
            name = token.text + index[:length].strip("_{}")
            at += length
            token = Token("name", names.setdefault(name, next(spare, "")))
        found.append(token)
    return found, [*names.values()]


def _values(tokens: Tokens, variable: str, constants: dict[str, Fraction]) -> NDArray[np.float64] | None:
    found = []
    for point in _POINTS:
        value = value_of(tokens, {variable: point, **constants}, pieces=False)
        number = None if value is None else real_number(number_key(value))
        if number is None:
            return None
        found.append(float(number))
    return np.array(found)
