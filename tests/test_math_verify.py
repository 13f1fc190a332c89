"""The drop-in for math-verify and TRL's reward: texts in, verdicts out, in bounded time, from any thread."""

import logging
import threading
from typing import Any

import pytest

from outcome_rl.math_verify import LatexExtractionConfig, TimeoutException, accuracy_reward, parse, verify
from outcome_rl.outcomes.grading import LONGEST_VOTE_S

HANGS = r"\sum_{j=1}^{1000000} 9^{9^{9}}"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"The answer is $\frac{1}{2}$", r"\frac{1}{2}"),
        (r"first \boxed{3}, then \boxed{5}", "5"),
        (r"<think>maybe \boxed{3}</think> **Answer:** 10", "10"),
        ("48 / 2 = 24\n#### 72", "72"),
        ("答案是：12", "12"),
        ("2x + 1", "2x + 1"),
    ],
)
def test_parse_returns_the_final_answer(text: str, answer: str) -> None:
    assert parse(text) == parse(text, [LatexExtractionConfig()], extraction_mode="first_match") == [answer]
    assert verify(parse(answer), parse(text))


def test_parse_of_nothing_is_empty() -> None:
    assert parse("") == parse("$$") == []
    assert not verify([], [])
    assert not verify(parse("1"), [])


def test_one_of_several_texts_is_enough() -> None:
    assert verify(["1/2", "3"], ["no", "0.5"])
    assert not verify(["1/2", "3"], ["no", "0.6"])


@pytest.mark.parametrize("wrong", [None, 7, [7], [None], 0.5], ids=repr)
def test_what_is_no_text_is_refused_by_its_name(wrong: Any) -> None:
    with pytest.raises(TypeError, match="gold must be"):
        verify(wrong, "7")
    with pytest.raises(TypeError, match="target must be"):
        verify("7", wrong)
    with pytest.raises(TypeError, match="solution must be"):
        accuracy_reward(["7"], wrong)


def test_any_thread() -> None:
    verdicts: list[bool] = []
    pairs = [(r"\int_0^1 2x dx", "1"), ("$2x + 1$", "$1 + x + x$"), ("$x = 3$", "$3$")]
    threads = [
        threading.Thread(target=lambda gold, text: verdicts.append(verify(parse(gold), parse(text))), args=pair)
        for pair in pairs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == [True] * 3


def test_a_hang_ends_at_the_limit_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert not verify("7", HANGS, timeout_seconds=0.2)
    assert "timeout" in caplog.text
    with pytest.raises(TimeoutException, match="timeout"):
        verify("7", HANGS, timeout_seconds=0.2, raise_on_error=True)
    with pytest.raises(ValueError, match="timeout_s"):
        verify("7", HANGS, timeout_seconds=LONGEST_VOTE_S + 1)


def test_accuracy_reward() -> None:
    columns: dict[str, list[Any]] = {}
    completions: list[Any] = [
        [{"role": "assistant", "content": r"My answer is \boxed{\frac{1}{3}}"}],
        [{"role": "assistant", "content": r"My answer is \boxed{\frac{1}{2}}"}],
        r"\boxed{x + x}",
        "no answer",
        r"\boxed{5 \text{ apples}}",
        r"\boxed{5}",
    ]
    solution = [r"so it is #### \frac{1}{3}", r"\frac{1}{3}", "2x", "2x", "5", ""]
    rewards = accuracy_reward(completions, solution, log_extra=columns.__setitem__, prompts=["unread"])
    assert rewards == [1.0, 0.0, 1.0, 0.0, 1.0, None]
    assert accuracy_reward(completions, solution, tolerant=False)[4] == 0.0
    assert columns == {
        "solution": solution,
        "gold_parsed": [r"\frac{1}{3}", r"\frac{1}{3}", "2x", "2x", "5", "[unparseable]"],
        "answer_parsed": [
            r"\frac{1}{3}", r"\frac{1}{2}", "x + x", "[unparseable]", r"5 \text{ apples}", "[skipped]",
        ],
    }  # fmt: skip
    with pytest.raises(ValueError, match="completions and solution must have one length; got 1 and 2"):
        accuracy_reward(["1"], ["1", "2"])
