"""The grammar: how texts are read, and that no text makes the reader recurse or run away."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcome_rl.outcomes.canonical.lexer import MAX_TOKENS, NotUnderstood, TooLarge, closing, split, tokenize
from outcome_rl.outcomes.canonical.parser import MAX_DEPTH, parse_expression
from outcome_rl.outcomes.canonical.trees import Apply, Call, Name, Rational, Tree, call, names_in, subtrees

ONE, TWO, X, Y = Rational(Fraction(1)), Rational(Fraction(2)), Name("x"), Name("y")


def read(text: str) -> Tree:
    return parse_expression(tokenize(text))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("1/2x", Call("*", (ONE, call("/", ONE, TWO), X))),
        (r"\frac{1}2x", Call("*", (call("/", ONE, TWO), X))),
        ("-x^2", call("-", call("^", X, TWO))),
        ("2^-x", call("^", TWO, call("-", X))),
        ("x--y", Call("+", (X, call("-", call("-", Y))))),
        (r"\sin2x", Call("sin", (Call("*", (TWO, X)),))),
        (r"\sin^2x", call("^", Call("sin", (X,)), TWO)),
        (r"\sin^{-1}x", Call("arcsin", (X,))),
        (r"\log_2x", call("/", Call("ln", (X,)), Call("ln", (TWO,)))),
        (r"\sqrt[x]{2}", call("^", TWO, call("/", ONE, X))),
        ("|x|y", Call("*", (Call("abs", (X,)), Y))),
        ("x^2 2", Call("*", (call("^", X, TWO), TWO))),
        ("x_1y", Call("*", (Name("x_1"), Y))),
        ("x^2_1", call("^", Name("x_1"), TWO)),
        ("x'", Name("x'")),
        ("sqrt(x)", call("^", X, call("/", ONE, TWO))),
        ("x%", X),
        ("f(x)", Apply("f", (X,))),
        (r"5^\text{th}", Rational(Fraction(5))),
        ("5cm", Rational(Fraction(5))),
    ],
)
def test_trees(text: str, tree: Tree) -> None:
    assert read(text) == tree


@pytest.mark.parametrize(("sign", "pm"), [(r"\pm", 1), (r"\mp", -1)])
def test_a_sign_of_two_is_read_as_one_of_them(sign: str, pm: int) -> None:
    tokens = tokenize(f"{sign} x{sign} y")
    assert parse_expression(tokens, pm) == Call("+", (X, Y))
    assert parse_expression(tokens, -pm) == Call("+", (call("-", X), call("-", Y)))
    with pytest.raises(NotUnderstood, match="a sign of two"):
        parse_expression(tokens)


def test_names() -> None:
    assert names_in(read(r"x_1+\sin(\theta)\cdot2^y+\pi+e")) == {"x_1", r"\theta", "y"}


@pytest.mark.parametrize("text", [r"\frac12", r"2\frac34", r"\binom53", "1 1/2"])
def test_the_parser_edits_no_tokens(text: str) -> None:
    tokens = tuple(tokenize(text))
    assert parse_expression(tokens) == read(text)


def test_the_lexer_splits_the_digits_of_a_fraction_as_tex_does() -> None:
    assert [token.text for token in tokenize(r"\frac123")] == [r"\frac", "1", "23"]
    assert [token.text for token in tokenize(r"\frac{12}34")] == [r"\frac", "{", "12", "}", "34"]


@settings(deadline=None)
@given(st.integers(2, 390))
def test_long_texts_make_wide_trees_not_deep_ones(length: int) -> None:
    def depth(tree: Tree) -> int:
        return 1 + max(map(depth, subtrees(tree)), default=0)

    for unit in (r"\pi", "+x", "/x", "-x", "!x"):
        text = "x" + unit * (length // len(unit))
        assert depth(read(text)) <= 4


@pytest.mark.parametrize(
    "unit", ["(", r"\sin", r"\frac{", r"\sqrt", "x^", "|", "f(", r"\log_{", "{", r"\vec{", r"\lfloor"]
)
def test_nesting_is_bounded(unit: str) -> None:
    with pytest.raises((TooLarge, NotUnderstood)):
        read(unit * (MAX_TOKENS // 4))


@pytest.mark.parametrize("text", ["dy/dx", r"\frac{dy}{dx}", r"\frac d{dx}", r"\frac{d^2y}{dx^2}"])
def test_a_derivative_is_refused(text: str) -> None:
    with pytest.raises(NotUnderstood):
        read(text)
    assert read(r"\frac{x}{d-k}")
    assert read("x/d")


@pytest.mark.parametrize("text", ["x" + "!^2" * 100])
def test_long_chains_of_postfixes_are_too_large(text: str) -> None:
    with pytest.raises(TooLarge, match=f"deeper than {MAX_DEPTH}"):
        read(text)


def test_the_number_of_tokens_is_bounded() -> None:
    with pytest.raises(TooLarge, match=f"more than {MAX_TOKENS} tokens"):
        tokenize("+" * (MAX_TOKENS + 1))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1,2", 2),
        ("(1,2),3", 2),
        (r"\{1,2\}", 1),
        ("[1,2),3", 2),
        (r"\frac{1,2}{3}", 1),
        ("1,234", 1),  # a number
        ("(1,234)", 1),
        ("1, 234", 2),
        ("", 1),
    ],
)
def test_splitting_outside_of_brackets(text: str, parts: int) -> None:
    assert len(list(split(tokenize(text), (",",)))) == parts


def test_closing_brackets() -> None:
    assert closing(tokenize("(1,[2,3))"), 0) == 8
    assert closing(tokenize("(1"), 0) == -1
