"""Extraction: each rule, the order of the rules, spans, hostile input, and agreement with published extractions."""

import json
import time
from pathlib import Path

import pytest
from announced_answers import CLASSES, LOOK_ALIKES, WRITTEN
from hypothesis import given, settings
from hypothesis import strategies as st

from outcome_rl.outcomes.extraction.response import MAX_CHARS, extract_answer
from outcome_rl.outcomes.extraction.view import view
from outcome_rl.outcomes.keys import outcome_key

GENERATIONS = Path(__file__).resolve().parents[3] / "shared" / "data" / "generations"


@pytest.mark.parametrize(
    ("response", "text", "source"),
    [
        (r"so \boxed{42}.", "42", "boxed"),
        (r"\boxed{1} or rather \boxed{2}", "2", "boxed"),
        ("$\boxed{18}$", "18", "boxed"),  # not escaped, as data and programs have it: with a backspace
        (r"\fbox{\frac{1}{2}}", r"\frac{1}{2}", "boxed"),
        (r"$\boxed 5$ apples", "5", "boxed"),
        (r"\(\boxed\frac{3}{56}\)", r"\frac{3}{56}", "boxed"),
        (r"so \boxed\frac12.", r"\frac12", "boxed"),
        # An escaped brace is a character: counting it would never close this box.
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right.", "boxed"),
        (r"\boxed{\boxed{5}}", "5", "boxed"),
        # A response cut off inside its last box still has the complete one before, or inside, it.
        (r"\boxed{5}, so the final \boxed{12", "5", "boxed"),
        (r"\boxed{x = \boxed{5}", "5", "boxed"),
        # Boxes that a comma or an "and" joins are one answer; an "or" may repeat it in another form.
        (r"$\boxed{2}, \boxed{3}$.", r"\boxed{2}, \boxed{3}", "boxed"),
        (r"\boxed{2} \quad \text{and} \quad \boxed{3}", r"\boxed{2} \quad \text{and} \quad \boxed{3}", "boxed"),
        (r"\(\boxed{2}\) and \(\boxed{3}\)", r"\boxed{2}\) and \(\boxed{3}", "boxed"),
        (r"f(x) = {2 } } \boxed{3}", "3", "boxed"),
        # What follows the reasoning wins over every box in it.
        (r"<think>maybe \boxed{3}</think> **Answer:** 10", "10", "phrase"),
        (r"<think>\boxed{3}</think> so \boxed{4}", "4", "boxed"),
        (r"[THINK]\boxed{3}[/THINK] #### " + "\n#### 7", "7", "hash"),
        (r"<|channel|>analysis<|message|>\boxed{3}<|end|><|channel|>final<|message|>The answer is 6.", "6", "phrase"),
        (r"<think>so \boxed{3}</think> I am done.", "3", "boxed"),  # nothing follows that has an answer
        (r"<think>so \boxed{3}</think>", "3", "boxed"),
        (r"<think>so \boxed{3}</think> **$x = 10$.**<|im_end|>", "x = 10", "line"),
        ("<think>so \\boxed{3}</think>\n\n$$\n\\frac12\n$$\n", r"\frac12", "line"),
        (r"<think>so \boxed{3}</think> 10 cm", "10 cm", "line"),
        (r"<think>so \boxed{3}</think> (C)", "(C)", "line"),
        (r"<think>so \boxed{3}</think> Step 10", "3", "boxed"),  # no answer, but words
        (r"analysis so \boxed{3}assistantfinal 10", "10", "line"),  # gpt-oss, without its special tokens
        (r"◁think▷so \boxed{3}◁/think▷ 1/2", "1/2", "line"),
        (r"<think>so \boxed{3}", "3", "boxed"),
        ("FINAL ANSWER:\n<answer>\n26\n</answer>", "26", "tag"),
        ("<answer>1</answer> wait <answer>2</answer> <answer>3", "2", "tag"),
        ("The answer is 5.\n#### 6", "6", "hash"),
        ("The answer is 3. No, the answer is: 4.5. I am sure.", "4.5", "phrase"),
        ("**Answer:** 12\n\nBye", "12", "phrase"),
        (r"<think>\boxed{3}</think> The final answer is: $\boxed{}$ 4", "3", "boxed"),
        (r"<think>\boxed{3}</think> I would choose option C.", "C", "conclusion"),
        ("The answer to Question 3 is ~18, I think.", "18", "phrase"),
        ("答：他一共有18个苹果。", "18", "phrase"),
        (r"It is \boxed{E = mc^2}." + "\n\n**Answer**: D", "D", "phrase"),
        (r"\boxed{3}" + "\nThe answer: well, we need to go on.", "3", "boxed"),
        ("### Final Answer:\n\\[\n 17. \n\\]", "17", "phrase"),
        # Within a formula `!` is a factorial, behind it a full stop.
        ("The answer is $5!$.", "5!", "phrase"),
        (r"So the number of ways is \(n!\)!", "n!", "conclusion"),
        ("The answer is $$ (n-1)! $$", "(n-1)!", "phrase"),
        ("<answer>$8!$</answer>", "8!", "tag"),
        ("$n!$", "n!", "line"),
        ("The answer is $5$!", "5", "phrase"),
        ("The answer is not 5, it is 7.", "7", "phrase"),
        ("The answer is not 5 but 7.", "7", "phrase"),
        # Special tokens of a plain `batch_decode` are no part of an answer.
        ("so\n#### 5 <｜end▁of▁sentence｜>", "5", "hash"),
        # A last sentence that concludes.
        ("Hence $x \\geq 5$ is the solution.", r"x \geq 5", "conclusion"),
        ("因此，杰西开始慢跑前的体重是192公斤。", "192", "conclusion"),
        # Other ways to name it.
        ("Answer:\n```\n7\n```", "7", "phrase"),
        ('{"answer": 7.5}', "7.5", "phrase"),
        ("The answer to the question should be 7.", "7", "phrase"),
        ("The answer for this part comes out to be $7$", "7", "phrase"),
        ("so x = 3.\nFinal result: 7", "7", "line"),
        ("We have 3. In conclusion, Tom has 7 apples.", "7", "conclusion"),
        # A box without content, or cut off, says nothing: the sentences before it do.
        (r"I will put it in \boxed{}. The answer is 7.", "7", "phrase"),
        (r"The answer is 7. In the form asked for: $\boxed{", "7", "phrase"),
        # The next question of a few-shot prompt, or another turn, is no part of the response.
        ("6 / 3 = 2.\n#### 2\n\nQuestion: What is 9 / 3?\nAnswer: 3\n#### 3", "2", "hash"),
        (r"\boxed{7}" + "\n\nHuman: And 8?\nAssistant: " + r"\boxed{15}", "7", "boxed"),
        (r"\boxed{9}</s>[INST] And 8? [/INST] \boxed{12}</s>", "9", "boxed"),
        (r"\boxed{0.5}<|eot_id|><|start_header_id|>assistant<|end_header_id|> \boxed{9}", "0.5", "boxed"),
        ("A: 6\n\nQ: 1 + 1?\nA: 2", "6", "line"),
        ("答案是 14。\n\n问题:8 × 2？\n答案是 16。", "14", "phrase"),
        (r"\boxed{6}" + "\n\n## Problem 2\nFind " + r"\boxed{5}", "6", "boxed"),
        ("The question is open.\nQuestion: what is $x$?\nThe answer is 3.", "3", "phrase"),  # its own question
        ("Thus, x is 3.\n\nProblem: and y?\nThe answer is 4.", "4", "phrase"),  # a step on the way
        # Several values are one answer, not its last part.
        (r"$x = \boxed{1}$, $y = \boxed{2}$.", r"x = \boxed{1}$, $y = \boxed{2}", "boxed"),
        (r"$x = \boxed{1}$, so $x + 1 = \boxed{2}$.", "2", "boxed"),
        (r"So the solution is $x \le -2$ or $x \ge 3$.", r"x \le -2$ or $x \ge 3", "line"),
        ("So she pays 1 * $250 = $250/week * 1 = $250/week.", "250", "conclusion"),  # `$250 = $` is no formula
        ("So the sum of 3 and 5 is 8.", "8", "conclusion"),
        ("So the interval is (1, 2).", "(1, 2)", "conclusion"),
        ("Thus $x = 2$ or $x = 3$.", "x = 2$ or $x = 3", "conclusion"),
        ("The answer is $x = 1$ and $y = 2$.", "x = 1$ and $y = 2", "phrase"),
        ("The answer is $12$, and $3$ is left.", "12", "phrase"),
        ("The answers are (1, 2) and (3, 4).", "(1, 2) and (3, 4)", "phrase"),
        # A choice, a formula or a number that is the whole response.
        ("**(C)**", "(C)", "line"),
        (r"$\frac12$", r"\frac12", "line"),
        # Other words.
        ("#### 20 million", "20 million", "hash"),
        ("3 / 2 = 1.5\nAns. 1.5", "1.5", "line"),
        ("Por lo tanto, la probabilidad es $\\frac{1}{3}$.", r"\frac{1}{3}", "conclusion"),
        ("**Respuesta final: 8 manzanas**", "8 manzanas", "phrase"),
        ("故选 B。", "B", "phrase"),
        # A phrase that says nothing new.
        ("The answer is 7. 7 - 3 = 4, so the answer is correct.", "7", "phrase"),
        ("The answer is 7. So the answer is consistent with what was said.", "7", "phrase"),
        ("So she needs 2 3/4 cups.", "2 3/4", "conclusion"),
        # A last sentence that states something, without a sign of a conclusion.
        ("7 · 3 = 21.\n\nThe area of the rectangle is 21 square units.", "21", "conclusion"),
        ("The sum is 41.\n\nHope this helps! 😊", "41", "conclusion"),
        # A choice with its text.
        ("The answer is (E) None of the above.", "(E)", "phrase"),
        ("B. 9.8 m/s^2", "B", "line"),
        ("따라서 정답은 21입니다.", "21", "phrase"),
        ("The answer is 7. Wait, is it? 7 + 3 = 10.", "7", "phrase"),
        ("The answer is 1.5.\n\nThe following are multiple choice questions.\nAnswer: B", "1.5", "phrase"),
        ("Therefore, 250 tickets were sold.\n\nExercise 3: A farmer has 30 cows.", "250", "conclusion"),
        ("Answer: (A) or (B)", "(A) or (B)", "phrase"),
        ("So the ratio is 3:4.", "3:4", "conclusion"),
        ("x = -3", "x = -3", "line"),
        ("We check, so 18 is indeed the answer.", "18", "phrase"),
        ("The answer is 2/3 ≈ 0.67.", "2/3 ≈ 0.67", "phrase"),
        ("The correct answer is indeed 84, not C.", "84", "phrase"),
        ('{"answer": "the twins\' age"}', "the twins' age", "phrase"),
        ("The value is 10 - 2t.", "10 - 2t", "line"),
        ("The correct solution is A) 12.", "A)", "phrase"),
        # A sentence behind an announcement: its one quantity, or its verdict.
        ("Answer: Tom has 12 pens left over.", "12", "phrase"),
        ("Answer:\n\nThe number of pens on both tables is 12.", "12", "phrase"),
        ("The answer is Tom spent $9.43 on pens.", "$9.43", "phrase"),
        ("Answer: Tom has a total of 12 pens.", "12", "phrase"),
        ("Answer: No, Alaska was not a state then.", "No", "phrase"),
        ("Answer: yes - it has 3 sides", "yes", "phrase"),
        ("Answer: All multiples of 6.", "All multiples of 6", "phrase"),
        ("Answer: There are 12 boys and 15 girls.", "There are 12 boys and 15 girls", "phrase"),
        ("Answer: 12 is the number of pens.", "12", "phrase"),
        ("Answer: Player 1 wins.", "Player 1 wins", "phrase"),
        ("Answer: The sum of both is negative 3.", "The sum of both is negative 3", "phrase"),
        ("Answer: Tom has no more than 12 pens.", "Tom has no more than 12 pens", "phrase"),
        ("Answer: Tom has 12 more pens than Ann.", "12", "phrase"),
        ("Answer: Tom has 12 more than Ann.", "Tom has 12 more than Ann", "phrase"),
        ("Answer: Tom has 2 dozen pens.", "Tom has 2 dozen pens", "phrase"),
        ("Answer: It does not.", "It does not", "phrase"),
        # Signs of currency delimit no formula.
        ("The answer is $220 - $180 = $40.", "$40", "phrase"),
        ("Total: 2 x $15 + $10 = $40", "$40", "line"),
        ("The answer is 3 x 4 = 12", "12", "phrase"),
        ("The answer is $2 + 3 = 5$.", "2 + 3 = 5", "phrase"),
        ("Among A through E, the answer is most likely C.", "C", "phrase"),
        ("28 + 7 = 35\n\n#### 35 pens are on both of the tables.", "35", "hash"),
        ("So our selection is option C. #### C ", "C", "hash"),
        ("#### Answer: 12 * 2 = 24 hours", "24 hours", "phrase"),
        (r"\boxed{2}，\boxed{3}", r"\boxed{2}，\boxed{3}", "boxed"),
        (
            r"$\theta = \boxed{\frac\pi2}$，$f\left(\frac{\pi}{2}\right) = \boxed{3}$",
            r"\theta = \boxed{\frac\pi2}$，$f\left(\frac{\pi}{2}\right) = \boxed{3}",
            "boxed",
        ),
    ],
)
def test_rules(response: str, text: str, source: str) -> None:
    answer = extract_answer(response)
    assert (answer.text, answer.source) == (text, source)
    assert response[answer.start : answer.end] == text


@pytest.mark.parametrize(
    "response",
    [
        "x = 5, hence 17",  # no "last number" rule
        "So a = 3 and b = -2.",  # a list of values is no conclusion, and one of them is no answer
        "Therefore, the values are 3 and 5.",
        "7 - 2 = 5. So Tom has 5 apples in 3 bags.",  # nobody can tell which
        "Therefore, the number of ways is 12",  # cut off
        r"The answer is \boxed{12",  # a truncated box: the phrase would read a fragment of it
        r"\boxed{}",
        "A: 1\nB: 2",  # options, not a last line
        "[ANSWER] 5 [/answer2]",
        "1 + 3",  # a calculation that was cut off, for all that is known
        "The answer of 7 is verified.",
        "The answer is 7. But the answer is not what was asked for.",  # taken back
        "x = 3. The answer is correct.",
        "We see that the answer is not. It has degree 3.",
        "**Final Answer**\n\\[\n\\boxed{(1, 2), (3",
        r"The answer is 3 + \boxed{12",
        "**Step 3**",
        r"Thus we solve for \( x \) and \( y \).",
        # Statements that plan, suppose or give a step.
        "We need to check that the sum is 12.",
        "The value is π/3.",
        "The population is 5 hundred.",
        "The area is 21 times the radius.",
        "The sum is never 5.",
        "The options are 1, 2, 3.",
        "A) 5 B) 6 C) 7",
        "(A) is wrong",
        "We get $369.15.\nThe answer i",  # cut off
        "It is the answer:\n\n```python\nprint(5)\n```",
    ],
)
def test_no_answer(response: str) -> None:
    assert extract_answer(response) is None


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
        last_box(answer.text if answer else "").replace(" ", "")
        == (sample["answer"] or "").replace(" ", "").replace("ANSWER", "")  # `\\boxed{ANSWER}` is a placeholder
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
