"""Keys: one key for one number however it is spelled, different keys for different answers, the same everywhere."""

import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl.outcomes.keys import (
    MAX_ANSWER_CHARS,
    NO_ANSWER,
    canonical_text,
    equivalent,
    exact_latex,
    is_exact,
    outcome_key,
    question_key,
)

SPELLINGS = [
    [
        "27",
        "27.0",
        "027",
        "$27$",
        r"\boxed{27}",
        "27.",
        "x=27",
        r"x = 27",
        r"27\text{ cm}",
        r"\$27",
        r"27\%",
        r"27^\circ",
    ],
    ["1/2", r"\frac12", r"\dfrac{1}{2}", "0.5", ".50", r"\frac{2}{4}", r"50.0/100"],
    ["-3/2", r"-1\frac{1}{2}", r"-\frac{3}{2}", r"\frac{-3}{2}", "-1.5", "−1.5", "-1 1/2"],
    ["1234567", "1,234,567", r"1{,}234{,}567", r"1,\!234,\!567", "1 234 567"],
    ["0", "-0", "0.0", "0/5"],
    [r"\text{Evelyn}", "Evelyn", r"\mathrm{Evelyn}"],
    [r"(\frac{1}{2}, x^{2})", r"\left( \dfrac12 ,\, x^2 \right)"],
    ["1, 234", "1 , 234"],
    [r"2\sqrt{3}", r"2 \sqrt3", "2√3"],
]


@pytest.mark.parametrize("spellings", SPELLINGS, ids=lambda spellings: spellings[0])
def test_spellings_share_a_key_with_each_other_and_with_nothing_else(spellings: list[str]) -> None:
    assert {outcome_key(text) for text in spellings} == {outcome_key(spellings[0])}
    others = {outcome_key(text) for group in SPELLINGS if group is not spellings for text in group}
    assert outcome_key(spellings[0]) not in others


def test_neighbours_stay_apart() -> None:
    answers = [
        "1/3",
        "0.333333",
        "0.5%",
        "50",
        "2^{99}",
        "2^{99}+1",
        "10_2",
        "10_3",
        "5m",
        r"5\text{ million}",
        "5",
        "5i",
    ]
    answers += [
        "(1,2)",
        "[1,2]",
        r"\{1,2\}",
        "1,2",
        "x+1",
        "1+x",
        "12",
        "1 2",
        "9^{9^{9}}",
        "٣",
        "3",
        "1_0",
        "10",
        "True",
        "true",
    ]
    assert len({outcome_key(answer) for answer in answers}) == len(answers)


@pytest.mark.parametrize("blank", ["", "  ", "$$", r"\(\)", ".", "{}", r"\left.\right."])
def test_nothing_left_is_no_answer(blank: str) -> None:
    assert outcome_key(blank) == NO_ANSWER


@given(st.text(max_size=40))
def test_keys_are_int64_and_zero_only_without_an_answer(answer: str) -> None:
    key = outcome_key(answer)
    assert -(2**63) <= key < 2**63
    assert (key == NO_ANSWER) == (canonical_text(answer) == "")
    assert equivalent(answer, answer)


@given(st.fractions())
def test_exact_texts_read_back(value: Fraction) -> None:
    canonical = canonical_text(f"{value.numerator}/{value.denominator}")
    assert canonical == f"q:{value.numerator}/{value.denominator}"
    assert is_exact(canonical)
    assert canonical_text(exact_latex(canonical)) == canonical


def test_known_keys_never_change() -> None:
    # Snapshots of counts hold these numbers: a change needs a new OUTCOME_RULE.
    assert outcome_key("1/2") == -5091495733681770406
    assert outcome_key("x+1") == 5770042885357630022
    assert question_key("gsm8k-1") == -4854922150587578329


def test_the_same_in_a_process_with_another_hash_seed() -> None:
    code = "from outcome_rl.outcomes.keys import outcome_key; print(outcome_key('x+1'))"
    output = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True
    )
    assert int(output.stdout) == outcome_key("x+1")


def test_question_keys() -> None:
    assert question_key(7) == question_key("7") != question_key("8") != 0
    with pytest.raises(ValueError, match="must not be blank"):
        question_key(" ")
    with pytest.raises(TypeError, match=r"got float 7\.0"):
        question_key(7.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got bool"):
        question_key(True)


def test_type_error_says_what_came() -> None:
    with pytest.raises(TypeError, match="answer must be a str; got NoneType"):
        canonical_text(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "answer",
    [
        "9" * MAX_ANSWER_CHARS,
        "9" * 100_000,
        "(" * 500 + ")" * 500,
        "{" * 500 + "}" * 500,
        r"\text{" * 160,
        "9^{9^{9}}",
        "1,111" * 200,
        "1 " * 500,
        "\x00" * 1000,
        "\ud800",
        r"\frac" * 200,
        "5" + "square " * 140,
        "{a" * 333 + "}" * 330,
        " " * 1_000_000,
    ],
    ids=lambda answer: f"{answer[:8]!r}x{len(answer)}",
)
@pytest.mark.timeout(20)  # milliseconds, unless something grows much faster than the text
def test_hostile_answers_have_a_key(answer: str) -> None:
    assert isinstance(outcome_key(answer), int)


def test_overlong_answers_equal_only_themselves() -> None:
    long = "1+" * MAX_ANSWER_CHARS
    assert equivalent(long, f" {long} ")
    assert not equivalent(long, long + "1")
    assert len(canonical_text(long)) < 50
