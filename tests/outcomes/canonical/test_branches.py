"""Further points: which formulas need them, and what they tell apart."""

from fractions import Fraction

import pytest

from outcome_rl.outcomes.canonical.branches import POINTS, branch_key, branch_values, has_branches
from outcome_rl.outcomes.canonical.evaluate import Evaluator
from outcome_rl.outcomes.canonical.lexer import tokenize
from outcome_rl.outcomes.canonical.parser import parse_expression
from outcome_rl.outcomes.canonical.trees import Tree


def constant(tree: Tree) -> object:
    return Evaluator().value(tree, 0)


def read(text: str) -> Tree:
    return parse_expression(tokenize(text))


@pytest.mark.parametrize(
    "text", ["|x|", r"\lfloor x\rfloor", r"\sqrt x", "x^y", r"\ln x", r"\arctan x", r"x+\max(x,1)", r"x^{\frac13}"]
)
def test_formulas_with_branches(text: str) -> None:
    assert has_branches(read(text), constant)


@pytest.mark.parametrize(
    "text", ["x^2", "2^x", r"\sin x", r"\sqrt2x", r"x^{3-1}", "|3|x", "f(x)", r"(\sqrt x)^2", "x!"]
)
def test_formulas_without_branches(text: str) -> None:
    assert not has_branches(read(text), constant)


def test_values_have_all_sizes_and_both_signs() -> None:
    values = branch_values(read("x"), constant, is_complex=False)
    assert len(values) == POINTS
    assert sum(value < 0 for value in values) == POINTS // 2
    assert min(map(abs, values)) < 0.2
    assert max(map(abs, values)) > 1e9


def test_jumps_are_evaluated_at_whole_and_half_numbers_too() -> None:
    values = branch_values(read(r"\lfloor x\rfloor"), constant, is_complex=False)
    ceilings = branch_values(read(r"\lceil x\rceil-1"), constant, is_complex=False)
    assert len(values) > POINTS
    assert values[:POINTS] == ceilings[:POINTS]
    assert values != ceilings


def test_a_value_off_the_reals_counts_only_in_complex_formulas() -> None:
    root = read(r"\sqrt x")
    assert None in branch_values(root, constant, is_complex=False)
    assert None not in branch_values(root, constant, is_complex=True)


def test_keys() -> None:
    assert branch_key(None) == "-"
    three = branch_values(read("3+0|x|"), constant, is_complex=False)
    assert {branch_key(value) for value in three} == {branch_key(three[0])}
    assert constant(("number", Fraction(3))) == 3
