"""Expression trees of formulas, made by `parser`. A sum or product is one node, however long."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Rational:
    """A number as it is written."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Name:
    """A variable: `x_1`."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """One of pi, e and i."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A known function or an operator with its operands: `+`, `*`, `/`, `^`, or `-` of one."""

    name: str
    parts: "tuple[Tree, ...]"


@dataclass(frozen=True, slots=True)
class Apply:
    """An unknown function: `f(x, y)`."""

    name: str
    parts: "tuple[Tree, ...]"


Tree = Rational | Name | Constant | Call | Apply


def call(name: str, *parts: Tree) -> Call:
    return Call(name, parts)


def subtrees(tree: Tree) -> tuple[Tree, ...]:
    return tree.parts if isinstance(tree, Call | Apply) else ()


def nodes(tree: Tree) -> Iterator[Tree]:
    """Return a tree and all trees in it."""
    yield tree
    for part in subtrees(tree):
        yield from nodes(part)


def names_in(tree: Tree) -> frozenset[str]:
    """Return the variables of a tree, and the unknown functions, as `f(`."""
    if isinstance(tree, Name):
        return frozenset((tree.name,))
    unknown = (f"{tree.name}(",) if isinstance(tree, Apply) else ()
    return frozenset(unknown).union(*map(names_in, subtrees(tree)))
