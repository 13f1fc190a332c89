r"""Find where a formula passes from one analytic function to another: the zeros of `x - 8` for `|x - 8|`.

No fixed points lie between 40 and 41, where alone sgn(x - 40) and sgn(x - 41) differ. So formulas with absolute values,
signs, maxima and floors have one key only if they break at the same places as well: at the zeros of the same function,
up to a factor, or where the same function, up to its sign and an integer, takes whole values.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations

from outcome_rl.outcomes.canonical.arithmetic import Number
from outcome_rl.outcomes.canonical.trees import Tree, names_in, subtrees

Constant = Callable[[Tree], Number]
"""The value of a subtree without variables."""

_TWO_PI: Tree = ("*", ("number", Fraction(2)), ("constant", "pi"))


def breaks(tree: Tree, constant: Constant) -> tuple[list[Tree], list[Tree]]:
    """Return the functions at whose zeros, and those at whose whole values, a formula breaks.

    Each of the latter, u, is returned as `cos(2 pi u)`, which is the same for u, -u and u + 1.
    """
    zeros: list[Tree] = []
    wholes: list[Tree] = []
    if not names_in(tree):
        return zeros, wholes
    name = tree[1] if tree[0] == "call" else ""
    parts = subtrees(tree)
    if name in ("abs", "sign"):
        zeros += [factor for factor in _factors(parts[0], constant) if not _is_positive(factor, constant)]
    elif name in ("max", "min"):
        zeros += [("+", a, ("neg", b)) for a, b in combinations(parts, 2) if names_in(a) | names_in(b)]
    elif name in ("floor", "ceil"):
        wholes.append(("call", "cos", ("*", _TWO_PI, parts[0])))
    elif name in ("ln", "log", "lg") or _is_even_root(tree, constant):  # the root of a square is an absolute value
        zeros += [base for base in _even_powers(parts[0], constant) if not _is_positive(base, constant)]
    elif _exponent(tree, constant) % 2 == 0 and tree[1][:2] == ("call", "abs"):  # the square of one is none
        parts = [tree[1][2]]
    for part in parts:
        more_zeros, more_wholes = breaks(part, constant)
        zeros += more_zeros
        wholes += more_wholes
    return zeros, wholes


def _factors(tree: Tree, constant: Constant) -> Iterator[Tree]:
    """Return the factors with variables at whose zeros a product changes its sign."""
    if tree[0] in ("*", "/"):
        for part in tree[1:]:
            yield from _factors(part, constant)
    elif tree[0] == "neg" or _exponent(tree, constant) % 2 == 1:
        yield from _factors(tree[1], constant)
    elif names_in(tree):
        yield tree


def _even_powers(tree: Tree, constant: Constant) -> Iterator[Tree]:
    """Return the bases of the factors of a product that are even powers, or that it holds an even number of times."""
    if tree[0] in ("*", "/"):
        for part, times in Counter(tree[1:]).items():
            yield from _factors(part, constant) if times % 2 == 0 else _even_powers(part, constant)
    elif names_in(tree) and tree[0] == "^" and _exponent(tree, constant) % 2 == 0:
        yield from _factors(tree[1], constant)


def _exponent(tree: Tree, constant: Constant) -> Fraction:
    """Return the constant exponent of a power; 1/2 of anything else, which is neither even nor odd."""
    if tree[0] != "^" or names_in(tree[2]):
        return Fraction(1, 2)
    exponent = constant(tree[2])
    return exponent if type(exponent) is Fraction else Fraction(1, 2)


def _is_even_root(tree: Tree, constant: Constant) -> bool:
    return tree[0] == "^" and names_in(tree[1]) != frozenset() and _exponent(tree, constant).denominator % 2 == 0


def _is_positive(tree: Tree, constant: Constant) -> bool:
    """Whether a formula is seen to take no negative value."""
    operator = tree[0]
    if not names_in(tree):
        value = constant(tree)
        return type(value) is Fraction and value >= 0
    if operator in ("+", "*", "/"):
        return all(_is_positive(part, constant) for part in tree[1:])
    if operator == "^":
        return _exponent(tree, constant) % 2 == 0 or _is_positive(tree[1], constant)
    return operator == "call" and tree[1] in ("abs", "exp", "cosh")
