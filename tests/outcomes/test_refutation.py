"""Refutation: what math-verify calls equal and is not, and what must stay equal."""

import itertools

import pytest
from tables import cases

from outcome_rl import OutcomeMatcher
from outcome_rl.isolation.grader import MathVerifyPool
from outcome_rl.outcomes.refutation import refuted, states


@pytest.mark.parametrize(("a", "b"), cases(__file__, "refuted"))
def test_what_differs_is_refuted(a: str, b: str) -> None:
    assert refuted(a, b)
    assert refuted(b, a)
    assert not states(a, b)
    assert not states(b, a)


@pytest.mark.parametrize(("a", "b"), cases(__file__, "undecided"))
def test_what_cannot_be_told_apart_is_left_to_the_judge(a: str, b: str) -> None:
    assert not refuted(a, b)
    assert not refuted(b, a)


@pytest.mark.parametrize(("value", "sentence"), cases(__file__, "sentences"))
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
