"""Forms of answers: what is one thing, what stays apart, and what no rule reads. Spellings are in `test_keys`."""

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import cases

from outcome_rl.outcomes.canonical.forms import mathematical_form
from outcome_rl.outcomes.canonical.labels import label_of
from outcome_rl.outcomes.canonical.latex import plain_latex
from outcome_rl.outcomes.canonical.lexer import Incomparable, NotUnderstood, TooLarge, Words, tokenize
from outcome_rl.outcomes.keys import canonical_text, equivalent


def form(answer: str) -> str:
    return mathematical_form(plain_latex(answer))


@pytest.mark.parametrize(("answer", "expected"), cases(__file__, "forms"))
def test_forms(answer: str, expected: str) -> None:
    assert form(answer) == expected


@pytest.mark.parametrize("answer", ["", *cases(__file__, "refused")])
def test_what_no_rule_reads_is_refused(answer: str) -> None:
    with pytest.raises(NotUnderstood):
        form(answer)


NESTED = ("(" * 60 + "1" + ")" * 60, ")" * 60 + "," + "(" * 60 + "1" + ")" * 60, r"\{" * 60 + r"\}" * 60)
REFUSED = {
    # 81 to TeX, 9/19 to whoever writes it.
    Incomparable: (r"\frac919", r"f(x) = \begin{cases} 1 & x > 0 \\ 2 & x < 0 \end{cases}"),
    Words: ("5 apples", r"\text{the sum of } 2", "where angle is 5"),
    TooLarge: ("9^{9^{9}}", "1000000000!", "1+" * 300 + "1", *NESTED, r"\sin" * 60 + "1"),
}


@pytest.mark.parametrize("error", REFUSED)
def test_what_is_no_form_is_refused_by_its_kind(error: type[ValueError]) -> None:
    for answer in REFUSED[error]:
        with pytest.raises(error):
            form(answer)


NUMBERS = st.fractions(-20, 20, max_denominator=9)
WRITTEN = [str, lambda q: rf"\frac{{{q.numerator}}}{{{q.denominator}}}", lambda q: f"({q.numerator})/{q.denominator}"]


@given(st.lists(NUMBERS, min_size=2, max_size=5), st.data())
def test_a_list_is_its_numbers_in_any_order_and_spelling(numbers: list[Fraction], data: st.DataObject) -> None:
    expected = "{" + ";".join(sorted(f"q:{q.numerator}/{q.denominator}" for q in numbers)) + "}"
    shuffled = data.draw(st.permutations(numbers))
    spelled = [data.draw(st.sampled_from(WRITTEN))(number) for number in shuffled]
    assert form(data.draw(st.sampled_from([", ", "; ", r" \text{ and } "])).join(spelled)) == expected


@given(NUMBERS, NUMBERS, NUMBERS, st.sampled_from(["<", ">", r"\leq", r"\geq"]))
def test_a_linear_inequality_is_the_interval_of_its_solutions(a: Fraction, b: Fraction, c: Fraction, sign: str) -> None:
    if a == 0:
        return
    root = (c - b) / a
    upwards = (sign in (">", r"\geq")) == (a > 0)
    end = f"q:{root.numerator}/{root.denominator}"
    open_, close = ("[", "]") if len(sign) > 1 else ("(", ")")
    assert form(f"({a})x+({b}){sign} {c}") == (f"{open_}{end};inf)" if upwards else f"(-inf;{end}{close}")


@given(*[st.integers(-9, 9)] * 3, st.fractions(-9, 9, max_denominator=9).filter(bool))
def test_an_equation_is_the_same_times_a_number(a: int, b: int, c: int, factor: Fraction) -> None:
    if a == 0 or b == 0:
        return
    scaled = [f"({factor * coefficient})" for coefficient in (a, b, c)]
    assert form(f"{a}x+({b})y=({c})") == form(f"{scaled[0]}x+{scaled[1]}y={scaled[2]}")
    assert form(f"{a}x+({b})y=({c})") != form(f"{a}x+({b})y=({c + 1})")


@pytest.mark.parametrize(("text", "label"), [("", "none"), *cases(__file__, "labels")])
def test_labels(text: str, label: str) -> None:
    assert (label_of(tokenize(text)) or "none") == label


@pytest.mark.parametrize(
    "unit", [r"\mathrm{~cm}", r"\mathrm{~km} / \mathrm{h}", r"\text{g}/\text{cm}^3", r"\text{ kJ per mol}"]
)
@pytest.mark.parametrize("number", ["5", r"\frac{1}{2}", r"2\sqrt{3}", r"3\pi", r"2(3+\sqrt{5})"])
def test_units_in_text_are_dropped(number: str, unit: str) -> None:
    """`~` is a space there, as most collections of competition problems write it."""
    assert equivalent(f"{number} {unit}", number)


def test_what_may_be_a_variable_or_a_division_is_no_unit() -> None:
    for text in (r"x \text{ m}", r"6/\text{s}", r"5\text{ m}/2", r"5\text{ m per 2 s}", "3 m", r"(3, 4)\text{ m}/2"):
        assert not equivalent(text, text.partition("\\")[0].partition(" ")[0])


COEFFICIENTS = ("3", r"\frac{1}{3}", r"\frac{\sqrt3}{2}", "2.5", r"12\pi ")


@pytest.mark.parametrize("letters", ["mg", "ml", "mL", "ml^2", "mL^2", "mgh", "mgl"])
@pytest.mark.parametrize("coefficient", COEFFICIENTS)
def test_letters_of_a_product_are_no_unit(coefficient: str, letters: str) -> None:
    """Mass times g or length; in text they are milligrams and millilitres."""
    assert not equivalent(f"{coefficient} {letters}", coefficient)
    if "^" not in letters:
        assert equivalent(f"{coefficient} {letters}", f"{coefficient} {letters[1:]}{letters[0]}")
    if letters in ("mg", "ml", "mL"):
        assert equivalent(rf"{coefficient}\text{{ {letters}}}", coefficient)


UNITS = ("feet", "inches", "hours", "minutes", r"\text{ m}", r"\text{ kg}", r"^\circ", r"\%", "dollars")


@pytest.mark.parametrize("joint", [", ", " and ", "; "])
def test_units_tell_the_numbers_of_a_list_apart(joint: str) -> None:
    def quantity(number: int, unit: str) -> str:
        return f"{number} {unit}" if unit.isalpha() else f"{number}{unit}"

    for one, other in combinations(UNITS, 2):
        text = quantity(5, one) + joint + quantity(6, other)
        assert not any(equivalent(text, unlike) for unlike in ("5, 6", quantity(6, one) + joint + quantity(5, other)))
        assert equivalent(quantity(5, one) + joint + quantity(6, one), "5, 6")


@pytest.mark.parametrize("constant", [r"2^2", r"\sqrt2", r"(2\sqrt2)^2", "(3!)", r"\pi^2", r"\frac{5^2}{3}", "e"])
@pytest.mark.parametrize(("x", "y"), [("x", "y"), ("a", "b"), ("x", "z"), ("u", "v")])
def test_an_equation_is_read_whatever_its_constant_and_the_names_of_its_variables(
    constant: str, x: str, y: str
) -> None:
    """A circle, a parabola, a line: all within the bound on work."""
    for left, moved in (
        (f"{x}^2+{y}^2={constant}", f"{constant}-{y}^2={x}^2"),
        (f"({x}-1)^2+({y}-2)^2={constant}", f"({y}-2)^2={constant}-({x}-1)^2"),
        (f"{x}^2={constant}{y}", f"{x}^2-{constant}{y}=0"),
        (f"2{x}+3{y}={constant}", f"3{y}+2{x}-{constant}=0"),
    ):
        assert equivalent(left, moved)
        assert canonical_text(left)[:2] in ("eq", "f:")
