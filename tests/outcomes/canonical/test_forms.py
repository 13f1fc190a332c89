"""Forms of answers: what is one thing, what stays apart, and what no rule reads. Spellings are in `test_keys`."""

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl.outcomes.canonical.forms import mathematical_form
from outcome_rl.outcomes.canonical.labels import label_of
from outcome_rl.outcomes.canonical.latex import plain_latex
from outcome_rl.outcomes.canonical.lexer import Incomparable, NotUnderstood, TooLarge, Words, tokenize
from outcome_rl.outcomes.keys import canonical_text, equivalent


def form(answer: str) -> str:
    return mathematical_form(plain_latex(answer))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (r"\{5\}", "q:5/1"),
        ("5, 5", "{q:5/1;q:5/1}"),  # a list keeps what it repeats
        (r"[1, \infty]", "[q:1/1;inf)"),
        ("x = 1, 2", "{q:1/1;q:2/1}"),
        ("2x + 3 = 7", "q:2/1"),
        (r"\frac{NO}{BO} = 2", "q:2/1"),
        (r"\text{Price} = \$5", "q:5/1"),
        (r"x = \frac12 \approx 0.5001", "q:1/2"),
        (r"-3 < 2x - 1 \leq 5", "(q:-1/1;q:3/1]"),
        (r"(1,5) - \{3\}", "U{(q:1/1;q:3/1);(q:3/1;q:5/1)}"),
        (r"(\pm 1, 2)", "{(q:-1/1;q:2/1);(q:1/1;q:2/1)}"),
        (r"\begin{pmatrix} 1 & 2 \end{pmatrix}", "M[(q:1/1;q:2/1)]"),
        ("x = 2x - 4", "q:4/1"),
        (r"\sqrt[3]{-8}", "q:-2/1"),
        (r"2\frac32", "q:3/1"),  # no mixed number but a product
        (r"50\frac{0}{4}", "q:50/1"),
        (r"2^{3^2}", "q:512/1"),
        ("-2^2", "q:-4/1"),
        (r"|-3| + \lfloor 2.7 \rfloor + \lceil 2.1 \rceil", "q:8/1"),
        (r"-.\overline{36}", "q:-4/11"),
        (r"5\text{ cm}, 6\text{ cm}", "{q:5/1;q:6/1}"),
        ("(1,234)", "(q:1/1;q:234/1)"),
        ("1,234, 5", "{q:1234/1;q:5/1}"),
        ("54,108,12", "{q:108/1;q:12/1;q:54/1}"),
    ],
)  # fmt: skip
def test_forms(answer: str, expected: str) -> None:
    assert form(answer) == expected


@pytest.mark.parametrize(
    "answer",
    [
        r"\sum_{k=1}^n k", r"\int_0^1 x dx", r"\lim_{x\to0} x", r"x^2 < 4", "x < y", r"x \equiv 3 \pmod 7",
        r"2k, k \in \mathbb{Z}", r"\{x \in \mathbb{Z} \mid x > 5\}", r"\{\{1\}\}", r"(1, \{2\})", "||x||", "2^3^2",
        "n!!", r"\vec a \cdot \vec b", r"\frac{\Delta v}{\Delta t}", r"\frac{dy}{dx}", "dy/dx", r"\gcd(4, 6)",
        r"\max(a, b)", "csch(x)", r"\sum_{k=1}^{4} k^3", "1 = 2", "a = 1, a + b = c = d",
        r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", "1 2", r"0.\overline{3}6", r"(a,b)\cup(c,d)", "1/0", r"\ln 0",
        r"\tan 90^\circ", "0^0", "x = 1, x = 2, y = 3", "x_1 = 2, x_2 = 1", "(y, x) = (1, 2)", "(x, y) = (1, 2, 3)",
        "x = 1 + 2 = 4", r"x = 1 \quad y = 2", "i = 1 + i", r"\angle ABC = 90", r"x = 1 \text{ or } y = 2",
        r"x < 1 \text{ or } x > 3 \text{ and } x < 5", r"p \text{ or } q", "x > 1, 5", r"2k, m \in \mathbb{Z}",
        r"2k + 3m, k \in \mathbb{Z}, m \in \mathbb{Z}", r"\pm 1 \pm 2", r"(\pm 1, \pm 2)",
        r"\begin{array}{c|c} 1 & 2 \end{array}", r"x^2 \asymp 5", r"3 \ast 4", "~p", "5–10", "(1,2", "1,,)", "", "+",
        r"\frac{1}", "x^", r"\sqrt", "...",
    ],
)  # fmt: skip
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


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("x_1'", "x_1'"),
        ("f(x)", "f(x)"),
        ("AB", "AB"),
        (r"\angle{ABC}", None),
        (r"\text{Total cost}", "Total cost"),
        (r"\text{Domain of}f(x)", "Domain off(x)"),
        (r"\text{not}y", None),
        (r"\text{No. of cows}", "No. of cows"),
        (r"\text{all except}y", None),
        ("minusy", None),
        ("i", "i"),
        (r"\frac{AB}{CD}", "AB/CD"),
        ("ab", None),
        (r"\sin x", None),
        ("", None),
    ],
)
def test_labels(text: str, label: str | None) -> None:
    assert label_of(tokenize(text)) == label


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
