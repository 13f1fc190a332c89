"""Extraction of the final answer of a response: the last complete `\\boxed{...}`, else one of a few fixed forms.

Every rule is a single pass over the end of the text, so hostile responses (a megabyte of `\\boxed{`) cost bounded time,
and no string raises. `docs/outcomes.md` gives the order of the rules, and the reason against a "last number in the
text" rule.
"""

import re
from collections.abc import Iterator
from itertools import islice

from outcome_rl.outcomes.extraction.answer import BOX, DIGIT, NAMED, SENTENCE_END, bare, last_match, moved, words_of
from outcome_rl.outcomes.extraction.boxes import EMPTY_BOX, last_box
from outcome_rl.outcomes.extraction.conclusions import conclusion, corrected
from outcome_rl.outcomes.extraction.phrases import alone, hash_mark, phrase, result, tag
from outcome_rl.outcomes.extraction.view import blank, view
from outcome_rl.outcomes.outcome import Outcome

MAX_CHARS = 1 << 16
"""Number of characters searched at the end of a response: more than 20,000 tokens."""


def extract_answer(response: str) -> Outcome | None:
    """Return the final answer of a response, or None if it has none.

    Args:
        response: any string; the completion as decoded, without the prompt.

    Returns:
        The answer of the first rule that applies to what follows the end of the model's reasoning (`</think>`), which
        may be only the answer, such as `10`, or, if none applies there, to all of the last `MAX_CHARS` characters: the
        last complete non-empty `\\boxed{...}` / `\\fbox{...}`, or the last few of them if a comma or an `and` joins
        them; `<answer>...</answer>`; `#### 42`; what follows a heading "Final Answer"; "the answer is ..." / "Answer:
        ..."; a last line `A: 42`; a last sentence "Therefore ... is 42." or `The area is 42.`; a number that is
        the whole response.
        A response ends where the model goes on with another question or turn (`Question: ...`, `<|im_end|>`) behind
        its answer. Where no box is complete and non-empty, the other rules read the sentences before the one in which
        a box was cut off.

    Raises:
        TypeError: if `response` is not a string.
    """
    if not isinstance(response, str):
        raise TypeError(f"response must be a str; got {type(response).__name__}. Decode token ids first.")
    skipped = max(0, len(response) - MAX_CHARS)
    # A backspace and `oxed` are a box whose backslash was not escaped.
    text = response[skipped:].rstrip().replace("\boxed", r"\fbox")
    answer = _answer_of_turn(text)
    if answer is None:
        return None
    start, end = answer.start + skipped, answer.end + skipped
    return Outcome(response[start:end], start, end, source=answer.source)  # as it stands, not as the view has it


# Base models go on with the next question of a few-shot prompt.
_NEXT_QUESTION = re.compile(words_of("question"))
_MAX_TURNS = 8


def _answer_of_turn(text: str) -> Outcome | None:
    """Return the answer behind the reasoning, before another question; else the one in all of the text."""
    thought = _end_of_reasoning(text)
    start, held = thought, None
    for question in islice(_NEXT_QUESTION.finditer(text, thought), _MAX_TURNS):
        answer = _read(text, start, question.start(), thought)
        if answer and answer.source != "conclusion":  # which may take a step on the way for the answer
            return answer
        start, held = question.end(), held or answer
    return _read(text, thought, len(text), thought) or (_read(text, 0, len(text), 0) if thought else None) or held


def _read(text: str, start: int, end: int, thought: int) -> Outcome | None:
    """Return the answer of a part of a text; behind the reasoning it may be all of it."""
    part = text[start:end].rstrip()
    answer = next(filter(None, _answers(part, is_final=0 < thought == start)), None)
    if answer and answer.source in ("boxed", "hash"):
        answer = _named_after(part, answer) or answer
    if answer and answer.source != "conclusion":
        answer = corrected(view(part), answer.end) or answer
    return answer and moved(answer, start)


def _answers(text: str, is_final: bool) -> Iterator[Outcome | None]:
    """Yield what each rule reads in a text without spaces at its end, in order."""
    if first_box := BOX.search(text):
        if box := last_box(text, first_box.start()):
            yield box
        text = _without_boxes(text)
    if tagged := tag(text):
        inside = "\n" in tagged.text and next(filter(None, _answers(tagged.text, is_final=False)), None)
        yield moved(inside, tagged.start) if inside else tagged
    seen = view(text)
    yield hash_mark(seen)
    yield _refined(text, seen, phrase(seen))
    yield result(seen)
    yield conclusion(text, seen)
    yield alone(seen)
    if is_final:
        yield bare(seen)
        yield conclusion(text, seen, is_final)


def _named_after(text: str, marked: Outcome) -> Outcome | None:
    """Return the choice or number that a line `Answer: D` behind the last box or mark names."""
    answer = phrase(view(text[marked.end :])) if text.find("nswer", marked.end) >= 0 else None
    return moved(answer, marked.end) if answer and NAMED.search(answer.text) and bare(answer.text) else None


def _refined(text: str, seen: str, stated: Outcome | None) -> Outcome | None:
    """Return the value of the last line where a label heads several lines or a sentence without one value."""
    if stated is None or not (
        len(stated.text.split()) > 3 or _HEADS.search(seen, max(0, stated.start - 150), stated.start)
    ):
        return stated
    last = conclusion(text, seen)
    is_later = last and ("\n" in seen[stated.end : last.start] or (last.start > stated.end and not bare(stated.text)))
    return last if last and is_later and DIGIT.search(last.text) else stated


_HEADS = re.compile(r"[Aa][Nn][Ss][Ww][Ee][Rr]\s{0,3}:\s{0,9}\n[^\n]{0,120}\Z")


def _without_boxes(text: str) -> str:
    """Blank the boxes without content, and drop the sentence in which a box was cut off and what follows it."""
    text = EMPTY_BOX.sub(blank, text)
    if cut_off := BOX.search(text):
        stop = last_match(SENTENCE_END, text[: cut_off.start()])
        text = text[: stop.end()].rstrip() if stop else ""
        while text.endswith(("\\[", "\\(", "\n$$", "\n$")):  # of the formula that was to hold the box
            text = text[:-2].rstrip()
    return text.rstrip()


def final_answer(gold: str) -> str:
    """Return the answer in a solution that ends in one, such as GSM8K's `... #### 42`; else the text itself."""
    if _FORMULA.fullmatch(gold):
        return gold
    answer = extract_answer(gold)
    return gold if answer is None or answer.source == "line" else answer.text


# Numbers, letters and signs without a word or a box, in which no rule reads another answer.
_FORMULA = re.compile(
    r"(?:[-+0-9.,/(){}\[\]^= ]|(?<![A-Za-z])[a-z](?![A-Za-z])"
    r"|\\(?:[dt]?frac|sqrt|pi|infty|circ|left|right|cdot|times|pm|cup|[,! ])(?![A-Za-z]))++"
)
# `</think>` of DeepSeek and Qwen, `[/THINK]` of Mistral, `<|end_of_thought|>`, the final channel of gpt-oss; and the
# text of a tool, which answers nothing.
_REASONING_END = re.compile(f"(?i){words_of('reasoning')}")


def _end_of_reasoning(text: str) -> int:
    """Return where the text after the model's reasoning begins; 0 if it does not say."""
    may_end = "</" in text or "[/" in text or "<|" in text or "◁" in text or "assistantfinal" in text
    end = last_match(_REASONING_END, text) if may_end else None
    return end.end() if end else 0
