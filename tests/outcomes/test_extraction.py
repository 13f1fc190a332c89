"""Extraction: each rule, the order of the rules, spans, hostile input, and agreement with published extractions."""

import json
import re
import time
from pathlib import Path

import pytest
from announced_answers import CLASSES, LOOK_ALIKES, WRITTEN
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import cases, decoded

from outcome_rl.outcomes.extraction.answer import WORDS, words_of
from outcome_rl.outcomes.extraction.response import MAX_CHARS, extract_answer, final_answer
from outcome_rl.outcomes.extraction.view import view
from outcome_rl.outcomes.keys import outcome_key

GENERATIONS = Path(__file__).resolve().parents[3] / "shared" / "data" / "generations"


@pytest.mark.parametrize(("response", "text", "source"), cases(__file__, "rules"))
def test_rules(response: str, text: str, source: str) -> None:
    answer = extract_answer(response)
    assert (answer.text, answer.source) == (text, source)
    assert response[answer.start : answer.end] == text


@pytest.mark.parametrize("response", cases(__file__, "no answer"))
def test_no_answer(response: str) -> None:
    assert extract_answer(response) is None


@pytest.mark.parametrize(("gold", "answer"), cases(__file__, "gold"))
def test_gold(gold: str, answer: str) -> None:
    assert final_answer(gold) == answer


COMMANDS = [r"\frac", r"\sqrt", r"\pi", r"\infty", r"\circ", r"\left", r"\right", r"\cdot", r"\pm", r"\cup", r"\,"]
PIECES = [*"-+0123456789.,/(){}[]^= axy", *COMMANDS]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=15).map("".join))
@settings(max_examples=500)
def test_no_rule_reads_another_answer_in_a_formula(gold: str) -> None:
    if (answer := extract_answer(gold)) is None or answer.source == "line":
        assert final_answer(gold) == gold
    else:
        assert final_answer(gold) == answer.text


@pytest.mark.parametrize(("kind", "words", "example", "counter"), WORDS)
def test_a_row_of_words_has_its_example_and_not_its_counter_example(
    kind: str, words: str, example: str, counter: str
) -> None:
    assert words in words_of(kind)
    assert re.search(f"(?i){words}", decoded(example))
    assert re.search(f"(?i){words}", counter) is None


@given(st.text(alphabet="ab5{}\\,", max_size=30), st.text(alphabet="ab5{}", max_size=10))
def test_balanced_box_after_any_text(before: str, inside: str) -> None:
    content = f"x{inside.replace('{', '').replace('}', '')}"
    assert extract_answer(f"{before}\n\\boxed{{{content}}}").text == content


@pytest.mark.parametrize(
    "unit",
    [
        "\\boxed{", "\\boxed{ }", "\\boxed ", "\\boxed{\\boxed{5}}", "{", "answer is $", "answer",
        "answer is that it is not ", "the correct option ", "\\boxed{}", "\\boxed \n", "#### 1", "A: \n", "<answer>",
        "</think>", "</think>\\boxed{", "</s>", "\nQ:", "\nProblem:\nThe answer is ", "**1** ", "so the 1 is ",
        ", so the 1", "$1$ and ", "the answer is $1$ and ", "$", " ",
    ],
)  # fmt: skip
@pytest.mark.timeout(20)  # a megabyte takes milliseconds; quadratic behaviour takes minutes
def test_hostile_text_is_bounded(unit: str) -> None:
    extract_answer((unit * (1_000_000 // len(unit) + 1))[:1_000_000])


ANNOUNCEMENTS = (
    "The answer is 5", "Answer:", "The answer to", "**Final Answer**", "#### 5", "A: 5", "<answer>5", "(A)",
)  # fmt: skip
ANNOUNCEMENTS += (
    '{"answer": 5', "Therefore x is 5", "The area is 5", "答案是 5", r"\boxed{5}", r"\boxed", "</think>5", "x = 5",
)  # fmt: skip
RUNS = " \t\n\r\xa0\u200b\u3000aé中😊ا1,.。-*_#`$\\{}()[]<>/|:=;'\"!?&~^+\x00\ud800"


@pytest.mark.parametrize("announcement", ANNOUNCEMENTS)
@pytest.mark.timeout(60)
def test_runs_of_a_character_take_linear_time(announcement: str) -> None:
    for character in RUNS:
        run = character * (MAX_CHARS - 100)
        for text in (f"{announcement}{run}x", f"{announcement}{run}x.\n{announcement}", f"{run}{announcement} 7."):
            start = time.process_time()
            extract_answer(text)
            assert time.process_time() - start < 0.5, (character, text[-9:])  # quadratic: ten seconds or more


@pytest.mark.parametrize("name", CLASSES)
@settings(deadline=None)
@given(data=st.data())
def test_what_is_said_is_read_however_it_is_decorated(name: str, data: st.DataObject) -> None:
    cases = data.draw(CLASSES[name]), data.draw(CLASSES[name])
    answers = [extract_answer(response) for response, _ in cases]
    keys = [answer and outcome_key(answer.text) for answer in answers]
    values = [outcome_key(value) for _, value in cases]
    assert keys == values  # so two are equal if their values are
    for (text, _), answer in zip(cases, answers, strict=True):
        assert text[answer.start : answer.end] == answer.text


@pytest.mark.parametrize("name", WRITTEN)
@settings(deadline=None)
@given(data=st.data())
def test_answers_have_one_key_if_they_mean_one_thing(name: str, data: st.DataObject) -> None:
    (text, meaning), (other, other_meaning) = data.draw(WRITTEN[name]), data.draw(WRITTEN[name])
    assert (outcome_key(text) == outcome_key(other)) == (meaning == other_meaning)


@pytest.mark.parametrize("lead", ["Answer: ", "The answer is ", "#### ", "**Final Answer**: ", "答案是", "Total: "])
@pytest.mark.parametrize("belongs", LOOK_ALIKES)
def test_what_belongs_to_a_value_stays_in_it(lead: str, belongs: str) -> None:
    answer = extract_answer(f"9 and 9.\n{lead}18{belongs}")
    assert answer is None or answer.text.endswith(belongs.strip())


@given(st.text(alphabet="*_`<b>/i 1a\\n(）：😀１\u200b答", max_size=40) | st.text(max_size=40))
def test_a_view_has_the_length_of_its_text_and_its_letters(text: str) -> None:
    seen = view(text)
    assert len(seen) == len(text)
    assert all(kept in (was, " ") or not was.isascii() for was, kept in zip(text, seen, strict=True))


def test_type_error_names_the_type() -> None:
    with pytest.raises(TypeError, match="response must be a str; got list"):
        extract_answer([1, 2])


def test_only_the_end_of_a_long_response_is_read() -> None:
    answer = extract_answer(r"\boxed{1}" + "x" * MAX_CHARS)
    assert answer is None
    response = "x" * MAX_CHARS + r" \boxed{42}"
    answer = extract_answer(response)
    assert response[answer.start : answer.end] == "42"


def last_box(text: str) -> str:
    """Return the last box of a joint answer, as the sources do."""
    _, box, last = text.rpartition(r"\boxed{")
    return last.removesuffix("}") if box else last


# The source's own extraction; the rest are texts cut off before their answer, or its own fallbacks.
@pytest.mark.parametrize(
    ("file", "agreement"),
    [
        ("gsm8k_14runs", 0.998),
        ("math500_3models", 0.998),
        ("mathcoder_mathematics", 0.998),
        ("mathcoder_simuleq", 0.998),
        ("qwen25math_math100x8", 1.0),
        ("nemo_math50x3", 0.97),  # in one, the source takes the answer to a question that the model asked itself
        ("dc_aime2020_2024", 0.95),
        ("dc_aime2024", 0.92),
    ],
)
def test_agrees_with_published_extractions(file: str, agreement: float) -> None:
    path = GENERATIONS / f"{file}.jsonl"
    if not path.exists():
        pytest.skip(f"needs {path}")
    samples = [sample for line in path.read_text().splitlines() for sample in json.loads(line)["samples"]]
    extracted = [extract_answer(sample["text"]) for sample in samples]
    same = sum(
        outcome_key(last_box(answer.text if answer else ""))
        == outcome_key((sample["answer"] or "").replace("ANSWER", ""))  # `\\boxed{ANSWER}` is a placeholder
        for answer, sample in zip(extracted, samples, strict=True)
    )
    assert same / len(samples) >= agreement


@pytest.mark.parametrize(
    "words",
    ["the correct option is", "the correct choice is", "the answer is", "respuesta:", "antwort:", "ответ:", "jibu:"],
)
def test_phrases_are_read_in_any_case(words: str) -> None:
    for text in (words, words.capitalize(), words.upper()):
        answer = extract_answer(f"{text} (B)\n\nThat is all.")
        assert (answer.text, answer.source) == ("(B)", "phrase")


@pytest.mark.parametrize("denial", ["7", "$7$", "equal to 7", r"\frac12", "correct", "verified"])
def test_a_denial_cancels_what_was_said_before(denial: str) -> None:
    assert extract_answer(f"The answer is 7. No wait, the answer is not {denial}.") is None
    again = extract_answer(f"The answer is not {denial}. So the answer is 8.")
    assert again.text == "8"


@pytest.mark.parametrize("answer", ["not possible", "not enough information", "nothing"])
def test_an_answer_may_be_a_denial_in_words(answer: str) -> None:
    found = extract_answer(f"The answer is {answer}.")
    assert found.text == answer
