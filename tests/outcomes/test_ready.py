"""Ready-made outcome functions: spellings of one outcome, spans, programs, and bounded time on hostile texts."""

import pytest

from outcome_rl.outcomes import ready
from outcome_rl.outcomes.functions import Failure, Outcome, found, wrapped


def value(function: object, response: str, **example: object) -> object:
    (result,) = wrapped(function).call([response], [example])
    assert isinstance(result, Outcome), result
    return result.value


@pytest.mark.parametrize(
    "response",
    [
        r"so \boxed{(B) Jupiter}", r"so \boxed{\text{(B)}}", "**B**", "B", "b", "(B)", "The correct option is B",
        "The correct option is B, because A is wrong.", "Final answer: b", "The answer is (B).",
        "Let us see.\n\nAnswer: **B**", "A would be too small.\n\nB.", "<answer>B</answer>", "I choose option **B**",
    ],
)  # fmt: skip
def test_letters(response: str) -> None:
    assert value(ready.multiple_choice, response) == "B"
    span = ready.multiple_choice(response, {})
    assert response[span.start : span.end].upper() == "B"


@pytest.mark.parametrize("response", ["", "no idea", r"\boxed{12}", "An answer, but none is chosen"])
def test_no_letter(response: str) -> None:
    assert value(ready.multiple_choice, response) is None


@pytest.mark.parametrize(
    ("response", "label"),
    [
        ("positive", "positive"),
        ("It was great.\nSentiment: **Positive**.", "positive"),
        ("Label: very good", "very good"),
        ("I am not sure about this one at all", None),
        ("two\nlines", None),
        ("", None),
        ("Sentiment:", None),
    ],
)
def test_labels(response: str, label: str | None) -> None:
    assert value(ready.label, response) == label


def test_labels_of_the_row() -> None:
    labels = ["positive", "very positive", "negative"]
    assert value(ready.label, "Not negative: it is Very Positive, I think", labels=labels) == "very positive"
    assert value(ready.label, "It is neutral", labels=labels) is None
    assert ready.label("so Negative.", {"labels": labels}) == Outcome("negative", 3, 11)


def test_tool_calls_in_canonical_form() -> None:
    canonical = '{"arguments":{"city":"Rome","days":[1,{"x":2}]},"name":"weather"}'
    for response in (
        '<tool_call>\n{"name": "weather", "arguments": {"days": [1, {"x": 2}], "city": "Rome"}}\n</tool_call>',
        'First {"name": "time"}, ```\n{"arguments": {"city": "Rome", "days": [1, {"x": 2}]}, "name": "weather"}\n```',
        canonical,
    ):
        outcome = ready.tool_call(response, {})
        assert outcome.value == canonical
        assert value(ready.tool_call, response[outcome.start : outcome.end]) == canonical
    assert value(ready.tool_call, '{"name": ') is None
    assert value(ready.tool_call, "<tool_call>none</tool_call>") is None
    assert value(ready.tool_call, '{"text": "a } in { a text"}') == '{"text":"a } in { a text"}'


def test_the_final_state_is_that_of_the_last_turn() -> None:
    episode = 'move east\n{"x": 1, "y": 0}\nmove north\n{"y": 1, "x": 1, "bag": {"coins": 3}}\nDone.'
    assert value(ready.final_state, episode) == '{"bag":{"coins":3},"x":1,"y":1}'


TESTS = {"tests": ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"]}


def test_programs() -> None:
    programs = [
        "```python\ndef add(a, b):\n    return a + b\n```",
        "First:\n```python\nx = 1\n```\nThen:\n```\nprint('hello')\ndef add(a, b): return 3\n```",
        "def add(a, b) return a", "import sys; sys.exit()", "def add(a, b):\n    while True: pass",
        "import os; os._exit(1)", "x = [0] * 10**10", "",
    ]  # fmt: skip
    with ready.Program.outcome as function:
        results = function.call(programs, [TESTS] * len(programs))
    passed = [one.value if isinstance(one, Outcome) else None for one in results]
    assert passed[:4] == [(True, True), (True, False), (False, False), (False, False)]
    assert [one.kind for one in results if isinstance(one, Failure)] == ["timeout", "crash", "memory"]
    assert passed[7] is None
    with ready.Program() as kind:
        assert kind.classify(["q"] * 2, programs[:2], rows=[TESTS] * 2).correct.tolist() == [True, False]


@pytest.mark.parametrize(
    "piece", ["{", "[", '{"a":', "<tool_call>", "answer ", " ", "\n", "*", "(", ":", "A", ".", "\\text{"]
)
@pytest.mark.parametrize("function", [ready.multiple_choice, ready.label, ready.tool_call, ready.final_state])
@pytest.mark.timeout(20)  # 0.3 s at most where it was written; a quadratic search takes minutes
def test_hostile_texts_take_bounded_time(function: object, piece: str) -> None:
    found(function(piece * (100_000 // len(piece)), {}), 10**6)
