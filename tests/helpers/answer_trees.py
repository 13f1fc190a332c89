"""Expression trees of answers, drawn at random; `outcome_pairs.py` makes pairs of them."""

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

Tree = tuple[Any, ...]


def num(value: int | Fraction) -> Tree:
    return ("num", Fraction(value))


ONE, TWO = num(1), num(2)
VARIABLES = ("x", "y", "n", "a", "b", "t", "theta", "x_1")
UNARY = ("sin", "cos", "tan", "sec", "exp", "ln", "sqrt", "arctan", "sinh", "tanh", "cot", "csc", "arcsin", "log2")


def number(rng: random.Random) -> Tree:
    kind = rng.random()
    if kind < 0.6:
        return num(rng.randint(1, 12))
    if kind < 0.8:
        return num(Fraction(rng.randint(1, 9), rng.choice((2, 3, 4, 5, 7, 8))))
    if kind < 0.9:
        return num(rng.randint(13, 2024))
    return ("pi",) if kind < 0.96 else ("e",)


def constant(rng: random.Random, depth: int) -> Tree:
    """A number: with roots, powers and functions."""
    if depth == 0 or rng.random() < 0.15:
        return number(rng)
    kind = rng.randrange(11)
    inner = [constant(rng, depth - 1) for _ in range(2)]
    if kind < 2:
        return ("add", inner[0], inner[1])
    if kind == 2:
        return ("add", inner[0], ("neg", inner[1]))
    if kind < 5:
        return ("mul", inner[0], inner[1])
    if kind == 5:
        return ("div", inner[0], inner[1])
    if kind < 8:
        return ("sqrt", num(rng.randint(2, 60)))
    if kind == 8:
        return ("pow", inner[0], num(rng.choice((2, 2, 3, -1, Fraction(1, 3), Fraction(3, 2)))))
    if kind == 9:
        return rng.choice((
            ("fact", num(rng.randint(2, 9))), ("binom", num(rng.randint(4, 12)), num(rng.randint(1, 4))),
            ("log2", num(rng.randint(3, 9))),
        ))  # fmt: skip
    return ("fn", rng.choice(("sin", "cos", "ln", "exp", "arctan", "tanh")), inner[0])


def formula(rng: random.Random, depth: int, names: Sequence[str], piecewise: bool) -> Tree:
    """An expression in these variables; with absolute values, floors and roots of squares if `piecewise`."""
    if depth == 0 or rng.random() < 0.12:
        return ("var", rng.choice(names)) if rng.random() < 0.65 else number(rng)
    inner = [formula(rng, depth - 1, names, piecewise) for _ in range(2)]
    if piecewise and rng.random() < 0.4:
        a = ("add", inner[0], rng.choice((num(rng.randint(1, 12)), ("neg", num(rng.randint(1, 12))))))
        return rng.choice((
            ("abs", a), ("abs", inner[0]), ("floor", ("div", inner[0], num(rng.randint(2, 5)))),
            ("ceil", ("div", inner[0], num(rng.randint(2, 5)))), ("sqrt", ("pow", a, TWO)), ("floor", a),
            ("sqrt", a), ("fn", "ln", ("pow", a, TWO)), ("fn", "arctan", ("fn", "tan", inner[0])),
        ))  # fmt: skip
    kind = rng.randrange(13)
    if kind < 3:
        return ("add", inner[0], inner[1])
    if kind < 5:
        return ("add", inner[0], ("neg", inner[1]))
    if kind < 7:
        return ("mul", inner[0], inner[1])
    if kind == 7:
        return ("div", inner[0], inner[1])
    if kind == 8:
        return ("pow", inner[0], num(rng.choice((2, 2, 3, 4, -1, -2))))
    if kind == 9:
        return ("sqrt", inner[0]) if piecewise or rng.random() < 0.5 else ("pow", TWO, inner[0])
    if kind == 10:
        name = ("var", rng.choice(names))
        return rng.choice((
            ("fact", name), ("binom", name, num(rng.randint(2, 3))),
            ("app", rng.choice(("f", "g", "P", "phi")), inner[0]),
        ))  # fmt: skip
    return ("fn", rng.choice(UNARY[:6] + UNARY[7:]), inner[0])


def parts(tree: Tree) -> Iterator[tuple[tuple[int, ...], Tree]]:
    """Every node with its path."""
    yield (), tree
    for index, part in enumerate(tree):
        if isinstance(part, tuple):
            for path, node in parts(part):
                yield (index, *path), node


def replaced(tree: Tree, path: tuple[int, ...], new: Tree) -> Tree:
    if not path:
        return new
    return (*tree[: path[0]], replaced(tree[path[0]], path[1:], new), *tree[path[0] + 1 :])
