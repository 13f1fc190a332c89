r"""Expression trees of formulas, made by `parser`.

A tree is a tuple `(operator, *operands)`: `("number", Fraction)`, `("name", "x_1")`, `("constant", "pi")`,
`("+", a, b, ...)`, `("*", a, b, ...)`, `("/", a, b)`, `("^", a, b)`, `("neg", a)`, `("pm", sign, a)`,
`("call", "sin", a)`, `("apply", "f", a, ...)` of an unknown function.
"""

from collections.abc import Iterator
from typing import Any

Tree = tuple[Any, ...]


def with_sign(tree: Tree, pm: int) -> Tree:
    """Return the tree with `\\pm` read as one of its signs."""
    if tree[0] == "pm":
        part = with_sign(tree[2], pm)
        return part if tree[1] == pm else ("neg", part)
    return tuple(with_sign(part, pm) if isinstance(part, tuple) else part for part in tree)


def with_value(tree: Tree, name: str, value: Tree) -> Tree:
    """Return the tree with a variable replaced."""
    if tree == ("name", name):
        return value
    return tuple(with_value(part, name, value) if isinstance(part, tuple) else part for part in tree)


def subtrees(tree: Tree) -> list[Tree]:
    """Return the subtrees of a tree, without its names and signs."""
    return [part for part in tree[1:] if isinstance(part, tuple)]


def nodes(tree: Tree) -> Iterator[Tree]:
    """Return a tree and all trees in it."""
    yield tree
    for part in subtrees(tree):
        yield from nodes(part)


def names_in(tree: Tree) -> frozenset[str]:
    """Return the variables of a tree, and the unknown functions, as `f(`."""
    if tree[0] == "name":
        return frozenset((tree[1],))
    unknown = (f"{tree[1]}(",) if tree[0] == "apply" else ()
    return frozenset(unknown).union(*map(names_in, subtrees(tree)))
