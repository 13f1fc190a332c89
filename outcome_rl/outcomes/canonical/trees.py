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
class Sum:
    """Terms, one after another."""

    parts: "tuple[Tree, ...]"


@dataclass(frozen=True, slots=True)
class Product:
    """Factors, one after another."""

    parts: "tuple[Tree, ...]"


@dataclass(frozen=True, slots=True)
class Quotient:
    """A fraction."""

    top: "Tree"
    bottom: "Tree"


@dataclass(frozen=True, slots=True)
class Power:
    """A power or a root."""

    base: "Tree"
    exponent: "Tree"


@dataclass(frozen=True, slots=True)
class Negative:
    """A term with a minus."""

    part: "Tree"


@dataclass(frozen=True, slots=True)
class Call:
    """A known function."""

    name: str
    parts: "tuple[Tree, ...]"


@dataclass(frozen=True, slots=True)
class Apply:
    """An unknown function: `f(x, y)`."""

    name: str
    parts: "tuple[Tree, ...]"


Tree = Rational | Name | Constant | Sum | Product | Quotient | Power | Negative | Call | Apply


def subtrees(tree: Tree) -> tuple[Tree, ...]:
    match tree:
        case Sum(parts) | Product(parts) | Call(_, parts) | Apply(_, parts):
            return parts
        case Quotient(one, other) | Power(one, other):
            return one, other
        case Negative(part):
            return (part,)
    return ()


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
