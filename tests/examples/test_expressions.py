"""A form ignores the order of operands, keeps the value, and no text runs, hangs or crashes the parser."""

import random
import string
from fractions import Fraction
from typing import Any

import pytest
from expressions import MAX_CHARS, MAX_DEPTH, parse
from hypothesis import given
from hypothesis import strategies as st

# A tree is a whole number, ("neg", tree), or (operator, tree, tree).
trees = st.recursive(
    st.integers(0, 12),
    lambda inner: st.one_of(st.tuples(st.just("neg"), inner), st.tuples(st.sampled_from("+-*/"), inner, inner)),
    max_leaves=9,
)


def text_of(tree: Any) -> str:
    if isinstance(tree, int):
        return str(tree)
    if tree[0] == "neg":
        return f"(-{text_of(tree[1])})"
    return f"({text_of(tree[1])} {tree[0]} {text_of(tree[2])})"


def value_of(tree: Any) -> Fraction:
    """The value by Python's own arithmetic."""
    if isinstance(tree, int):
        return Fraction(tree)
    if tree[0] == "neg":
        return -value_of(tree[1])
    a, b = map(value_of, tree[1:])
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}[tree[0]]()


def reordered(tree: Any, draw: random.Random) -> Any:
    """Swap operands of + and *, regroup sums and products, and write a-b as -b+a."""
    if isinstance(tree, int):
        return tree
    if tree[0] == "neg":
        return ("neg", reordered(tree[1], draw))
    kind, a, b = tree[0], reordered(tree[1], draw), reordered(tree[2], draw)
    if kind in "+*":
        if isinstance(a, tuple) and a[0] == kind and draw.random() < 0.5:
            return (kind, a[1], (kind, b, a[2]))
        return (kind, b, a) if draw.random() < 0.5 else (kind, a, b)
    return ("+", ("neg", b), a) if kind == "-" and draw.random() < 0.5 else (kind, a, b)


def has_value(tree: Any) -> bool:
    try:
        value_of(tree)
    except ZeroDivisionError:
        return False
    return True


@given(trees.filter(has_value), st.randoms(use_true_random=False))
def test_any_order_of_operands_has_one_form(tree: Any, draw: random.Random) -> None:
    one = parse(text_of(tree))
    other = parse(text_of(reordered(tree, draw)))
    assert one == other
    assert one.value == value_of(tree)


@given(trees.filter(has_value))
def test_a_form_has_the_value_and_the_numbers_and_is_its_own_form(tree: Any) -> None:
    """Therefore expressions of different values, or of different numbers, have different forms."""
    one = parse(text_of(tree))
    assert parse(one.form) == one


@given(trees)
def test_a_division_by_zero_is_no_expression(tree: Any) -> None:
    if not has_value(tree):
        with pytest.raises(ValueError, match="zero"):
            parse(text_of(tree))


@pytest.mark.parametrize(
    "equal",
    [
        ["(50 - 8) * 3 + 2", "2+3*(50-8)", "2 - (8-50)*3", "$3 \\times \\left(50 - 8\\right) + 2$", "2−3·(8−50)"],
        ["(7-3)*(9-5)", "(5-9)*(3-7)", "-(5-9)*(7-3)"],
        ["8/(3/4)", "8*4/3", "4*8/3", "(8/3)*4"],
        ["10-(4-(3-1))", "10-4+3-1", "3+10-(4+1)"],
    ],
)
def test_spellings_of_one_expression(equal: list[str]) -> None:
    assert len({parse(text) for text in equal}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [("6*4", "3*8"), ("8+8", "2*8"), ("6/2", "6-3"), ("2*(3+1)", "2*3+2*1"), ("4*1", "4/1"), ("1+23", "12+12")],
)
def test_other_ways_to_a_value_are_other_forms(one: str, other: str) -> None:
    assert parse(one).value == parse(other).value
    assert parse(one).form != parse(other).form


HOSTILE = [
    "9**9**9", "9^9^9", "2***3", "__import__('os').system('true')", "exec('1')", "(lambda:0)()", "1 if 1 else 2",
    "0x10", "1e999", "1_000", "1.5", "3!", "١+٢", "½", "a+b", "", " ", "()", "(", ")", "1 2", "1+", "*1", "1//2",
    "2(3)", "1;2", "1,2", "=24", "24=24", "\\frac{1}{2}", "\\input{x}", "nan", "inf", "NaN", "True", "[1]", "{1}",
    "'1'", "#",
    "\x00", "1\n+\n__import__('os')", "(" * 300, "-" * 300 + "1", "(" * 150 + "1" + ")" * 150, "1+" * 5000 + "1",
    "9" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(text)


@given(st.text(alphabet=string.digits + "+-*/() \n", max_size=MAX_CHARS + 9) | st.text())
def test_no_text_does_more_than_raise(text: str) -> None:
    try:
        one = parse(text)
    except ValueError:
        return
    assert one.form == parse(one.form).form or len(one.form) > MAX_CHARS


def test_the_longest_and_deepest_expressions_are_read() -> None:
    assert parse("9" * MAX_CHARS).value == int("9" * MAX_CHARS)
    assert parse("1*" * (MAX_CHARS // 2 - 1) + "10").value == 10
    assert parse("(" * MAX_DEPTH + "1" + ")" * MAX_DEPTH).value == 1
    alternating = "(1-" * MAX_DEPTH + "1" + ")" * MAX_DEPTH
    assert parse(alternating).value in (0, 1)
