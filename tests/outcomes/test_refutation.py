"""Refutation: what math-verify calls equal and is not, and what must stay equal."""

import itertools

import pytest

from outcome_rl import OutcomeMatcher
from outcome_rl.isolation.grader import MathVerifyPool
from outcome_rl.outcomes.refutation import refuted, states


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (r"\{1, 2\}", r"\{1, 2, \ldots\}"),
        ("n^2", r"n^2 \text{ if } n \text{ is even}"),
        ("5以上", "5以下"),
        ("5", "5 dozen"),
        ("5", "5 is undefined"),
        ("5", r"x \to 5"),
        (r"\frac{\partial f}{\partial x}", r"\frac{\partial f}{\partial y}"),
        (r"\frac{dv}{dz}", r"(\frac{dv}{dz})^4"),
        ("p", "~p"),
        (r"p \land q", r"p \lor q"),
        (r"\angle ABC = 90", r"\angle ACB = 90"),
        (r"a \equiv b", "a = b"),
        ("2 to 3", "3 to 2"),
        ("5 tea", "5 eat"),
        ("5_a", "5"),
        ("a = b = c", "a = c = d"),
        ("not 5 or 6", "6"),
        ("5'6\"", "56"),
        (r"\frac{1}{3}", r"\frac{1}{3} \text{ or } 0.34"),
        (r"7\text{th root}", "7"),
        (r"\lim_{z \to 3} z", r"3 \pm 4 \pm 3"),
        ("A) 5, B) 6", "6"),
    ],
)
def test_what_differs_is_refuted(a: str, b: str) -> None:
    assert refuted(a, b)
    assert refuted(b, a)
    assert not states(a, b)
    assert not states(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (r"\frac{n(n+1)}{2}", r"\sum_{k=1}^n k"),
        ("n!", r"\prod_{k=1}^n k"),
        ("1/2", r"\int_0^1 x dx"),
        (r"\lim_{x \to 0} \frac{\sin x}{x}", "1"),
        ("v^2_0 t", "v_0^2 t"),
        ("9^{9^{9}}", "1+" * 300),
        ("z = 1 + 1 = 2", "z = 3 - 1 = 2"),
        (r"S = \sum_{k=1}^n a_k b_k", r"S = \sum_{k=1}^n b_k a_k"),
    ],
)
def test_what_cannot_be_told_apart_is_left_to_the_judge(a: str, b: str) -> None:
    assert not refuted(a, b)
    assert not refuted(b, a)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("1000.99", "so the number is 10 which is 1,000.99m²"),
        ("1000.99", "not it's not 10 it's 1,000.99m²"),
        ("4000", "地块面积 = 72000 / 18 = 4000千克"),
        (r"\begin{pmatrix}0 & 0\end{pmatrix}", r"Here is a zero row: $\begin{bmatrix}0 & 0\end{bmatrix}$"),
        ("2.74", "Soucis : 2.74 $"),
        ("10", "that the average speed is 10 miles/hour"),
    ],
)
def test_a_sentence_states_its_value_and_is_never_voted_on(value: str, sentence: str) -> None:
    assert states(value, sentence)
    assert states(sentence, value)
    assert not states(sentence, "7")
    assert refuted(value, sentence)
    assert refuted(sentence, value)


QUANTITIES = (
    r"{0} \text{{ {1} }}", r"\text{{{0} {1}}}", r"{0}\text{{ {1} at 4\%}}", r"\${0} \text{{ in {1}}}",
    r"\text{{{1}: }} {0}", r"\text{{{1}}} = {0}", r"{1} = {0}",
)  # fmt: skip
SEPARATORS = (
    r"\text{ and }", " and ", ", ", r", \text{and} ", r"\text{ or }", "; ", r" \text{ but } ", r" \& ", r" \quad ",
    r" \\ ",
)  # fmt: skip


def test_one_of_several_quantities_is_not_the_answer() -> None:
    """math-verify takes the first or the last number of a list."""
    for quantity, separator, number in itertools.product(QUANTITIES, SEPARATORS, ("35", "52")):
        answer = quantity.format(35, "hot dogs") + separator + quantity.format(52, "sodas")
        assert refuted(number, answer), answer
        assert refuted(answer, number), answer
        assert not states(number, answer), answer


@pytest.mark.parametrize("command", ["textminus", "det", "deg", "notin", "ll", "cup", "permil", "unheardof"])
def test_a_number_after_a_command_that_is_dropped_is_not_the_answer(command: str) -> None:
    assert refuted("35", rf"\{command} 35")
    assert refuted("35", rf"\text{{it is }} \{command}{{52}} 35")


@pytest.mark.parametrize("command", ["quad", "displaystyle", "textbf", "left("])
def test_commands_that_change_no_value_refute_nothing(command: str) -> None:
    assert not refuted("35", rf"\{command} 35")


FORMS = (r"5\text{{ {}}}", r"\text{{5 {}}}", "5 {}", r"5\%\text{{ {}}}", r"\$5 \text{{ {}}}")
OPPOSITES = (("increase", "decrease"), ("km north", "km south"), ("m to the left", "m to the right"), ("boys", "girls"))


def test_numbers_with_other_words_differ() -> None:
    """math-verify reads no words."""
    for form, (one, other) in itertools.product(FORMS, OPPOSITES):
        assert refuted(form.format(one), form.format(other))
        assert not refuted(form.format(one), form.format(one).replace(" ", "  "))


NOT_NUMBERS = (
    "x+1", "(1,2)", r"\{1,2\}", "[0,1)", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "y=2x+3", "x^2", "x>3", "1,2",
)  # fmt: skip
ADDITIONS = (
    r"\text{ for x>0}", r"\text{ where x=2}", r"\text{ times 2}", r"\text{ modulo 7}", r"\text{ and 9}",
    r"\text{ transposed}", r"\text{ complement}", r"\text{ exclusive}", r"\text{ million}",
)  # fmt: skip


def test_what_is_said_beside_a_formula_counts() -> None:
    for answer, addition in itertools.product(NOT_NUMBERS, ADDITIONS):
        assert refuted(answer, answer + addition), answer + addition
        assert refuted(answer + addition, answer), answer + addition


@pytest.mark.parametrize("equation", ["x+y+z=0", r"\vec a \cdot \vec b = 0", "y'+py=0", r"\sin x = 0"])
def test_an_equation_is_no_number(equation: str) -> None:
    assert refuted("0", equation)
    assert not refuted("0", "x = 0")


def test_the_matcher_believes_no_equality_that_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MathVerifyPool, "vote", lambda self, pairs, *_, **__: ["equal"] * len(pairs))
    answers, golds = [r"\sum_{k=1}^n k", r"\sum_{k=1}^n k \text{ if } n > 2"], [r"\frac{n(n+1)}{2}"] * 2
    assert OutcomeMatcher().classify_answers(["q", "q"], answers, golds).correct.tolist() == [True, False]
