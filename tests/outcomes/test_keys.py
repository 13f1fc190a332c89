"""Keys: equal for all spellings of an answer, different for different answers, the same on every machine."""

import os
import subprocess
import sys
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import cases, rows

from outcome_rl.outcomes import keys
from outcome_rl.outcomes.keys import (
    MAX_ANSWER_CHARS,
    MAX_CANONICAL_CHARS,
    NO_ANSWER,
    canonical_text,
    equivalent,
    is_open,
    outcome_key,
)
from outcome_rl.questions import question_key

SPELLINGS = [spellings for _, *spellings in rows(__file__, "spellings")]


@pytest.mark.parametrize("spellings", SPELLINGS, ids=lambda spellings: spellings[0])
def test_spellings_share_one_key(spellings: list[str]) -> None:
    assert {outcome_key(text) for text in spellings} == {outcome_key(spellings[0])}
    others = {outcome_key(text) for group in SPELLINGS if group is not spellings for text in group}
    assert outcome_key(spellings[0]) not in others


FUNCTIONS = ("sin", "cos", "tan", "cot", "csc", "arcsin", "arccos", "arctan", "sinh", "ln", "log", "exp")


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    "form", [r"\operatorname{{{}}} x", r"\operatorname{{{}}}(x)", r"\mathrm{{{}}}\,x", r"2\mathrm{{{}}}(x)"]
)
def test_a_function_is_the_same_in_every_font(name: str, form: str) -> None:
    factor = 2 if form.startswith("2") else ""
    assert canonical_text(form.format(name)) == canonical_text(rf"{factor}\{name} x")


@pytest.mark.parametrize("formula", [r"32\%", "3:4", "(2,3)", "x = 5", "[1, 2]", "2x + 1", "-7"])
@pytest.mark.parametrize("group", ["text", "mathrm", "textbf"])
def test_a_formula_in_text_is_a_formula(formula: str, group: str) -> None:
    assert canonical_text(rf"\{group}{{{formula}}}") == canonical_text(formula)


def test_near_misses_have_different_keys() -> None:
    answers = [answer for _, *answers in rows(__file__, "near misses") for answer in answers]
    keys = [outcome_key(answer) for answer in answers]
    assert len(set(keys)) == len(answers), [a for a, key in zip(answers, keys, strict=True) if keys.count(key) > 1]


@pytest.mark.parametrize(("a", "b"), cases(__file__, "look-alikes"))
def test_different_answers_that_look_alike_differ(a: str, b: str) -> None:
    assert not equivalent(a, b)


def test_a_canonical_text_is_never_much_longer_than_its_answer() -> None:
    answer = ",".join(f"7^{{{n}}}" for n in range(11600, 11560, -1))
    assert len(canonical_text(answer)) <= MAX_CANONICAL_CHARS
    assert canonical_text(answer).startswith("{")
    assert equivalent(answer, ",".join(reversed(answer.split(","))))
    assert not equivalent(answer, answer.replace("11600", "11601"))


@pytest.mark.parametrize("blank", ["", "  ", "$$", r"\(\)", ".", r"\left.\right."])
def test_blank_is_no_answer(blank: str) -> None:
    assert outcome_key(blank) == NO_ANSWER


@pytest.mark.parametrize(("text", "value"), cases(__file__, "rational"))
def test_rational_numbers_are_exact(text: str, value: str) -> None:
    assert canonical_text(text) == f"q:{Fraction(value).numerator}/{Fraction(value).denominator}"


@pytest.mark.parametrize("text", cases(__file__, "not rational"))
def test_anything_else_is_no_rational_number(text: str) -> None:
    assert not canonical_text(text).startswith("q:")


@given(st.fractions(), st.integers(0, 3))
def test_reads_back_every_fraction(value: Fraction, zeros: int) -> None:
    sign, n, d = "-" if value < 0 else "", abs(value.numerator), value.denominator
    key = f"q:{value.numerator}/{d}"
    assert canonical_text(f"{value.numerator}/{d}") == canonical_text(f"{3 * value.numerator}/{3 * d}") == key
    assert canonical_text(rf"{sign}\frac{{{n}}}{{{d}}}") == key
    assert canonical_text(f"{'0' * zeros}{n:,}") == f"q:{n}/1" or zeros


@given(st.from_regex(keys.PLAIN_NUMBER, fullmatch=True))
def test_the_short_way_for_plain_numbers_agrees_with_the_grammar(text: str) -> None:
    assert canonical_text(text) == keys.by_grammar(text)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**12), max_value=10**12))
def test_decimals_are_exact(value: object) -> None:
    exact = Fraction(str(value))
    assert canonical_text(f"{value:f}") == f"q:{exact.numerator}/{exact.denominator}"


@pytest.mark.parametrize(
    ("answer", "open_"),
    [("x+1", False), (r"\sum_{k=1}^n k", True), ("odd", False), ("5 apples and 3 pears", True), ("9^{9^{9}}", False)],
)
def test_is_open(answer: str, open_: bool) -> None:
    assert is_open(canonical_text(answer)) is open_


def test_known_keys_never_change() -> None:
    # Snapshots of counts hold these numbers: a change needs a new OUTCOME_RULE.
    assert outcome_key("1/2") == -5091495733681770406
    assert outcome_key("x+1") == 5720228471435528433
    assert outcome_key(r"\sqrt{2}, 1") == 5905669757747990440
    assert question_key("gsm8k-1") == -4854922150587578329


PROCESS = """
import sys, threading
if {without_gmpy2}:
    sys.modules["gmpy2"] = None
from outcome_rl.outcomes.keys import canonical_text
answers, results, barrier = {answers!r}, {{}}, threading.Barrier(8)
def run(first):  # from another answer in each thread, so that all of them meet what is made at the first use
    barrier.wait()
    keys = {{answer: canonical_text(answer) for answer in answers[first:] + answers[:first]}}
    results[first] = [keys[answer] for answer in answers]
threads = [threading.Thread(target=run, args=(first,)) for first in range(0, 80, 10)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(results) == 8 and all(result == results[0] for result in results.values())
print("\\n".join(results[0]))
"""


@pytest.mark.parametrize("without_gmpy2", [True, False])
def test_same_keys_in_threads_and_other_processes(without_gmpy2: bool) -> None:
    # gmpy2, where it is installed, does mpmath's integer arithmetic.
    answers = [spelling for spellings in SPELLINGS for spelling in spellings]
    output = subprocess.run(
        [sys.executable, "-c", PROCESS.format(answers=answers, without_gmpy2=without_gmpy2)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert output.stdout.splitlines() == [canonical_text(answer) for answer in answers]


@pytest.mark.parametrize(("pair", "named"), [((1, "1"), r"a must be a str; got 1 \(int\)"), (("1", None), "b must be")])
def test_equivalent_names_the_argument(pair: tuple[Any, Any], named: str) -> None:
    with pytest.raises(TypeError, match=named):
        equivalent(*pair)


def test_type_error_names_the_type() -> None:
    with pytest.raises(TypeError, match="answer must be a str; got NoneType"):
        canonical_text(None)


def test_overlong_answers_equal_only_themselves() -> None:
    long = "1+" * MAX_ANSWER_CHARS
    assert equivalent(long, f" {long} ")
    assert not equivalent(long, long + "1")
    assert len(canonical_text(long)) < 50


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["where{}x", "so{}5", "twenty{}one{}", "\\text{{ten{}}}", "${}ten{}$", "minus{}"])
def test_spaces_cost_linear_time(text: str) -> None:
    canonical_text(text.format(" " * 900, " " * 50))
