"""Refutation: what math-verify calls equal and is not, and what must stay equal."""

import pytest

from outcome_rl import OutcomeMatcher
from outcome_rl.outcomes.grader import MathVerifyPool
from outcome_rl.outcomes.refutation import refuted

QUALIFIERS = (
    "dozen", "or more", "percent less", "squared", "thirds", "years ago", "crore", "bn", "mln", "per mille", "ppm",
    "basis points", "and up", "or so", "binary", "hex", "inverse", "is undefined",
)  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (r"\{1, 2\}", r"\{1, 2, \ldots\}"),
        ("n^2", r"n^2 \text{ if } n \text{ is even}"),
        ("5", r"\text{about } 5"),
        (r"\frac{n(n-1)}{2}", r"\sum_{k=1}^n k"),
        (r"\sum_{k=1}^n k^2", r"\sum_{k=1}^n k"),
        (r"\prod_{k=1}^n k", "n"),
        ("1/2", "1/3"),
        ("5以上", "5以下"),
        ("5以上", "5"),
        *(("5", f"5 {words}") for words in QUALIFIERS),
        (r"32\% \text{ more}", r"32\% \text{ less}"),
        ("5", r"x \to 5"),
        (r"\frac{\partial f}{\partial x}", r"\frac{\partial f}{\partial y}"),
        ("1110_{(2)}", "1110_3"),
        ("p", "~p"),
        (r"p \land q", r"p \lor q"),
        (r"\angle ABC = 90", r"\angle ACB = 90"),
        (r"f^{(3)}(0)", "f^3(0)"),
        ("0x1F", "0x2F"),
        ("0.1(6)", "0.6"),
        ("5–10", "5-10"),
        (r"a \equiv b", "a = b"),
        ("a⊕b", "a+b"),
        ("ℵ0", "0"),
        (r"\exists x, x > 7", "7"),
        (r"\exists x, x > 5", r"5\text{ m} + 10\text{ cm}"),
        (r"5\text{ m} + 10\text{ cm}", "5"),
        ("(B) and (D)", "(B) or (D)"),
        ("2 to 3", "3 to 2"),
        ("5 tea", "5 eat"),
        ("5_a", "5"),
        ("E[X^2]", "E[X]^2"),
        (r"\nabla \cdot F", r"\nabla \times F"),
        ("a = b = c", "a = c = d"),
        ("z = 1 + 1 = 2", "z = 3 = 3"),
        ("x is not 5 m^2", "5"),
        ("not 5 or 6", "6"),
        (r"x \not\in A", r"x \in A"),
        ("5'6\"", "56"),
        ("(1,2)", "(1,2)'"),
        (r"\frac{1}{3}", r"\frac{1}{3} \text{ or } 0.34"),
        (r"\frac{1}{2}", r"\frac{1}{2} \text{ or } 60\%"),
        (r"7\text{th root}", "7"),
        (r"1 \equiv 10", r"7 \equiv 10"),
        (r"\lim_{z \to 3} z", r"3 \pm 4 \pm 3"),
        ("A) 5, B) 6", "6"),
        (r"\sqrt{x^2}", "x"),
    ],
)
def test_what_differs_is_refuted(a: str, b: str) -> None:
    assert refuted(a, b)
    assert refuted(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (r"\frac{n(n+1)}{2}", r"\sum_{k=1}^n k"),
        ("n!", r"\prod_{k=1}^n k"),
        ("1/2", r"\int_0^1 x dx"),
        ("5", r"5 \text{ apples}"),
        ("5", "5页"),
        (r"\lim_{x \to 0} \frac{\sin x}{x}", "1"),
        ("v^2_0 t", "v_0^2 t"),
        ("9^{9^{9}}", "1+" * 300),
        ("z = 1 + 1 = 2", "z = 3 - 1 = 2"),
        (r"S = \sum_{k=1}^n a_k b_k", r"S = \sum_{k=1}^n b_k a_k"),
        ("not 12, it is 5", "5"),
        ("1000.99", "not 10, it's 1,000.99 m²"),
        ("70", "La réduction est de 30. Le coût est donc de 70"),
        ("70", r"70\text{ cm}^2"),
        ("2.74", "Soucis : 2,74 $"),
        (r"\frac{1}{3}", r"\frac{1}{3} \text{ or } 0.333"),
        (r"\sqrt{2}", r"\sqrt{2} \text{ (approximately } 1.414)"),
        (r"\frac{1}{2}", r"\frac{1}{2} \text{ or } 50\%"),
    ],
)
def test_what_cannot_be_told_apart_is_left_to_the_judge(a: str, b: str) -> None:
    assert not refuted(a, b)
    assert not refuted(b, a)


QUANTITIES = (
    r"{0} \text{{ {1} }}",
    r"\text{{{0} {1}}}",
    r"{0}\text{{ {1} at 4\%}}",
    r"\${0} \text{{ in {1}}}",
    r"\text{{{1}: }} {0}",
    r"\text{{{1}}} = {0}",
    r"{1} = {0}",
)
SEPARATORS = (
    r"\text{ and }",
    " and ",
    ", ",
    r", \text{and} ",
    r"\text{ or }",
    "; ",
    r" \text{ but } ",
    r" \& ",
    r" \quad ",
    r" \\ ",
)


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_one_of_several_quantities_is_not_the_answer(quantity: str, separator: str) -> None:
    """math-verify takes the first or the last number of a list."""
    answer = quantity.format(35, "hot dogs") + separator + quantity.format(52, "sodas")
    for number in ("35", "52"):
        assert refuted(number, answer)
        assert refuted(answer, number)


@pytest.mark.parametrize(
    "command", ["textminus", "det", "deg", "notin", "ll", "cup", "hat", "sgn", "permil", "unheardof"]
)
def test_a_number_after_a_command_that_is_dropped_is_not_the_answer(command: str) -> None:
    assert refuted("35", rf"\{command} 35")
    assert refuted("35", rf"\text{{it is }} \{command}{{52}} 35")


@pytest.mark.parametrize("command", ["therefore", "quad", "displaystyle", "textbf", "left(", "pounds", "Rightarrow"])
def test_commands_that_change_no_value_refute_nothing(command: str) -> None:
    assert not refuted("35", rf"\{command} 35")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("increase", "decrease"),
        ("profit", "loss"),
        ("km north", "km south"),
        ("m to the left", "m to the right"),
        ("boys", "girls"),
    ],
)
@pytest.mark.parametrize("form", [r"5\text{{ {}}}", r"\text{{5 {}}}", "5 {}", r"5\%\text{{ {}}}", r"\$5 \text{{ {}}}"])
def test_numbers_with_other_words_differ(form: str, one: str, other: str) -> None:
    """math-verify reads no words."""
    assert refuted(form.format(one), form.format(other))
    assert not refuted(form.format(one), form.format(one).replace(" ", "  "))


@pytest.mark.parametrize("more", [r"\text{ and }3\text{ nickels}", r"\text{ to }8\text{ dimes}", r", 3\text{ nickels}"])
def test_a_text_with_more_numbers_differs(more: str) -> None:
    assert refuted(r"5\text{ dimes}", rf"5\text{{ dimes}}{more}")


NOT_NUMBERS = (
    "x+1", "(1,2)", r"\{1,2\}", "[0,1)", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "y=2x+3", "x^2", "x>3", "1,2",
)  # fmt: skip
ADDITIONS = (
    r"\text{ for x>0}", r"\text{ where x=2}", r"\text{ times 2}", r"\text{ modulo 7}", r"\text{ and 9}",
    r"\text{ transposed}", r"\text{ complement}", r"\text{ exclusive}", r"\text{ million}",
)  # fmt: skip


@pytest.mark.parametrize("addition", ADDITIONS)
@pytest.mark.parametrize("answer", NOT_NUMBERS)
def test_what_is_said_beside_a_formula_counts(answer: str, addition: str) -> None:
    assert refuted(answer, answer + addition)
    assert refuted(answer + addition, answer)


@pytest.mark.parametrize("operator", ["max", "min", "gcd", "det", "deg", "arg"])
def test_an_operator_of_the_value_counts_and_one_of_its_name_does_not(operator: str) -> None:
    assert refuted("x+1", rf"\{operator}(x+1)")
    assert refuted("3", rf"\{operator} 3")
    assert not refuted("3", rf"\{operator} f = 3")


def test_the_matcher_believes_no_equality_that_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MathVerifyPool, "compare", lambda self, pairs, *more: ["equal"] * len(pairs))
    answers, golds = [r"\sum_{k=1}^n k", r"\sum_{k=1}^n 2k"], [r"\frac{n(n+1)}{2}"] * 2
    assert OutcomeMatcher().classify_answers(["q", "q"], answers, golds).correct.tolist() == [True, False]
    assert OutcomeMatcher("math_verify").classify_answers(["q", "q"], answers, golds).correct.all()
