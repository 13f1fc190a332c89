"""Breaks: where formulas pass from one analytic function to another."""

import pytest

from outcome_rl.outcomes.canonical.breaks import breaks
from outcome_rl.outcomes.canonical.evaluate import Evaluator
from outcome_rl.outcomes.canonical.lexer import tokenize
from outcome_rl.outcomes.canonical.parser import parse_expression
from outcome_rl.outcomes.canonical.trees import Tree


def constant(tree: Tree) -> object:
    return Evaluator().value(tree, 0)


def read(text: str) -> Tree:
    return parse_expression(tokenize(text))


@pytest.mark.parametrize(
    ("text", "zeros", "wholes"),
    [
        ("|x-8|", 1, 0),
        ("|xy|", 2, 0),
        ("|x|^2", 0, 0),
        ("|x^2+1|", 0, 0),
        (r"\sqrt{x^2}", 1, 0),
        (r"\sqrt{xx}", 1, 0),
        (r"\ln x^4", 1, 0),
        (r"\sqrt{x}", 0, 0),
        (r"\max(a,b,c)", 3, 0),
        (r"\lfloor x\rfloor+\lceil y\rceil", 0, 2),
        ("x^2+1", 0, 0),
        ("|3|", 0, 0),
    ],
)
def test_number_of_breaks(text: str, zeros: int, wholes: int) -> None:
    found = breaks(read(text), constant)
    assert (len(found[0]), len(found[1])) == (zeros, wholes)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("|x-8|", "|16-2x|", True),
        ("|xy|", "|x||y|", True),
        (r"\lfloor x\rfloor", r"\lfloor x+1\rfloor", True),
        (r"\lfloor x\rfloor", r"\lceil-x\rceil", True),
        (r"\sqrt{x^2}", "|x|", True),
        ("|x-8|", "|x-7|", False),
        (r"\lfloor x\rfloor", r"\lfloor2x\rfloor", False),
    ],
)
def test_keys_of_breaks(a: str, b: str, same: bool) -> None:
    assert (Evaluator().break_keys(read(a)) == Evaluator().break_keys(read(b))) is same
