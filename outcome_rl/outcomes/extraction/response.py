"""Extraction of the final answer of a response: the last complete `\\boxed{...}`, else one of a few fixed forms.

Every rule is a single pass over the end of the text, so hostile responses (a megabyte of `\\boxed{`) cost bounded time,
and no string raises. `docs/outcomes.md` gives the order of the rules, and the reason against a "last number in the
text" rule.
"""

import re
from collections.abc import Callable
from itertools import islice

from outcome_rl.outcomes.extraction.answer import (
    BOX,
    SENTENCE_END,
    SPECIAL_TOKEN,
    Answer,
    bare,
    last_match,
    moved,
    stripped,
)
from outcome_rl.outcomes.extraction.boxes import EMPTY_BOX, PLACEHOLDER, last_box
from outcome_rl.outcomes.extraction.conclusions import bold, conclusion, only_quantity, statement
from outcome_rl.outcomes.extraction.marks import choice_with_text, hash_mark, only_number, tag
from outcome_rl.outcomes.extraction.phrases import phrase, result, said
from outcome_rl.outcomes.extraction.view import blank, view

MAX_CHARS = 1 << 16
"""Number of characters searched at the end of a response: more than 20,000 tokens."""


def extract_answer(response: str) -> Answer | None:
    """Return the final answer of a response, or None if it has none.

    Args:
        response: any string; the completion as decoded, without the prompt.

    Returns:
        The answer of the first rule that applies to what follows the end of the model's reasoning (`</think>`), which
        may be only the answer, such as `10`, or, if none applies there, to all of the last `MAX_CHARS` characters: the
        last complete non-empty `\\boxed{...}` / `\\fbox{...}`, or the last few of them if a comma or an `and` joins
        them; `<answer>...</answer>`; `#### 42`; what follows a heading "Final Answer"; "the answer is ..." / "Answer:
        ..."; a last sentence "Therefore ... is 42."; a last line `A: 42`; bold type in the last line; a last sentence
        `The area is 42.`; a number that is the whole response.
        A response ends where the model goes on with another question or turn (`Question: ...`, `<|im_end|>`) behind
        its answer. Where no box is complete and non-empty, the other rules read the sentences before the one in which
        a box was cut off.

    Raises:
        TypeError: if `response` is not a string.
    """
    if not isinstance(response, str):
        raise TypeError(f"response must be a str; got {type(response).__name__}. Decode token ids first.")
    skipped = max(0, len(response) - MAX_CHARS)
    text = response[skipped : _end_of_text(response)]
    if _UNESCAPED_BOX in text:
        answer = extract_answer(response.replace(_UNESCAPED_BOX, r"\fbox"))  # as long
        return answer and answer._replace(text=response[answer.start : answer.end])
    turns = islice(_TURN_END.finditer(text), _MAX_TURNS) if "<" in text else ()
    for end in (*(turn.start() for turn in turns), len(text)):
        if answer := _answer_in_turns(text[:end].rstrip()):
            return moved(answer, skipped)
    return None


_UNESCAPED_BOX = "\boxed"  # as a string holds it whose backslashes were not escaped: with a backspace


def _answer_in_turns(text: str) -> Answer | None:
    """Return the answer in a text that ends where the model yields its turn."""
    thought = _end_of_reasoning(text)
    if thought and (answer := _before_next_question(text[thought:], thought) or _final(text[thought:], thought)):
        return answer
    return (
        (None if thought else _before_next_question(text, 0))
        or _answer_in(text, 0)
        or only_number(text)
        or _before_next_question(text, 0, weak=True)
    )


# Base models go on with the next question of a few-shot prompt, or with the user's turn.
_TURN_END = re.compile(
    r"<\|(?:im_end|eot_id|endoftext|end_of_text|return)\|>|<｜end▁of▁sentence｜>|</s>|<(?:eos|end_of_turn)>"
)
_NEXT_QUESTION = re.compile(
    r"\n[ \t#*_>]*(?:(?i:(?:(?:next|new|another) )?(?:question|problem|exercise|instruction|human|user)|pregunta"
    r"|problème|frage|aufgabe)|Q(?=[0-9 ]*:)|问题|题目|(?i:example)(?=[ \t]*[0-9]))"
    r"[ \t]*[0-9]*[ \t*_.)]*(?:[:：]|(?=\n))|\n[ \t]*The following (?:is|are) [^\n.]{0,40}questions?\b"
)
_MAX_TURNS = 8


def _before_next_question(text: str, offset: int, weak: bool = False) -> Answer | None:
    """Return the answer before another question begins.

    Args:
        weak: also use the rules that may take a step on the way for the answer: a conclusion, bold text.
    """
    start = 0
    for question in islice(_NEXT_QUESTION.finditer(text), _MAX_TURNS):
        before = text[start : question.start()].rstrip()
        answer = _answer_in(before, offset + start)
        if answer is None and start == 0 and (whole := choice_with_text(before)):
            answer = moved(whole, offset)
        if answer is not None and (weak or answer.source not in _WEAK):
            return answer
        start = question.end()
    return None


_WEAK = frozenset(("conclusion", "bold"))


def final_answer(gold: str) -> str:
    """Return the answer in a solution that ends in one, such as GSM8K's `... #### 42`; else the text itself."""
    answer = extract_answer(gold)
    return gold if answer is None else answer.text


def after_reasoning(response: str) -> str:
    """Return what follows the end of the model's reasoning, or the whole response if that has no answer."""
    final = response[_end_of_reasoning(response) :]
    return final if len(final) < len(response) and _final(final[: _end_of_text(final)], 0) is not None else response


def _final(text: str, offset: int) -> Answer | None:
    """Return the answer of what follows the reasoning, which begins at `offset`; it may be the answer only."""
    if answer := _answer_in(text, offset):
        return answer
    read = _without_boxes(text) if BOX.search(text) else text
    seen = view(read)
    choice = choice_with_text(seen)
    answer = bare(seen, 0) or (choice and said(seen, choice.start)) or only_quantity(read)
    return answer and moved(answer._replace(text=text[answer.start : answer.end]), offset)


def _answer_in(text: str, offset: int) -> Answer | None:
    """Return the answer of a text that begins at `offset` of another one."""
    read = text
    if first_box := BOX.search(text):
        answer = last_box(text, first_box.start())
        if answer and PLACEHOLDER.fullmatch(answer.text):
            answer = last_box(EMPTY_BOX.sub(blank, text), first_box.start())
        if answer:
            return moved(_named_after(text, answer) or answer, offset)
        read = _without_boxes(text)
    answer = tag(read)
    if answer and "\n" in answer.text:
        answer = _answer_in(answer.text, answer.start) or answer
    if answer is None:
        seen = view(read)
        answer = next(filter(None, (rule(seen if of_view else read) for rule, of_view in _FALLBACKS)), None)
    return answer and moved(answer._replace(text=text[answer.start : answer.end]), offset)


def _named_after(text: str, box: Answer) -> Answer | None:
    """Return the choice or number that a line `Answer: D` behind the last box names."""
    if text.rfind("nswer", box.end) < 0:
        return None
    answer = phrase(view(text[box.end :]))
    if answer is None or not (_NAMED.search(answer.text) and bare(answer.text, 0)):
        return None
    answer = moved(answer, box.end)
    return answer._replace(text=text[answer.start : answer.end])


_NAMED = re.compile(r"[0-9]|\A\(?[A-J]\b")


def _without_boxes(text: str) -> str:
    """Blank the boxes without content, and drop the sentence in which a box was cut off and what follows it."""
    text = EMPTY_BOX.sub(blank, text)
    if cut_off := BOX.search(text):
        stop = last_match(SENTENCE_END, text[: cut_off.start()])
        text = text[: stop.end()].rstrip() if stop else ""
        while text.endswith(("\\[", "\\(", "\n$$", "\n$")):  # of the formula that was to hold the box
            text = text[:-2].rstrip()
    return text.rstrip()


# `</think>` of DeepSeek and Qwen, `[/THINK]` of Mistral, `<|end_of_thought|>`, the final channel of gpt-oss; and the
# text of a tool, which answers nothing.
_REASONING_END = re.compile(
    r"</(?:[a-z]+:)?(?:think|thinking|thought|reasoning|reflection|analysis|tool_call|tool_response)>"
    r"|\[/THINK\]|<\|end_of_thought\|>"
    r"|<\|channel\|>final<\|message\|>|◁/think▷|assistantfinal(?![a-z])",
    re.IGNORECASE,
)


def _end_of_reasoning(text: str) -> int:
    """Return where the text after the model's reasoning begins; 0 if it does not say."""
    # Most texts end here: one character is found much faster than two, and two than the pattern.
    slash = "/" in text and ("</" in text or "[/" in text)
    if not (slash or ("|" in text and "<|" in text) or "◁" in text or "assistantfinal" in text):
        return 0
    end = last_match(_REASONING_END, text)
    return 0 if end is None else end.end()


def _end_of_text(response: str) -> int:
    """Return where the special tokens and spaces at the end begin."""
    end = len(response.rstrip())
    while response.endswith(">", 0, end):
        start = response.rfind("<", max(0, end - 48), end)
        if start < 0 or SPECIAL_TOKEN.fullmatch(response, start, end) is None:
            break
        _, end = stripped(response, 0, start)
    return end


# Rules for a text without spaces at its end, and whether they read its view.
_FALLBACKS: tuple[tuple[Callable[[str], Answer | None], bool], ...] = (
    (hash_mark, True),
    (phrase, True),
    (conclusion, False),
    (result, True),
    (bold, False),
    (statement, False),
)
