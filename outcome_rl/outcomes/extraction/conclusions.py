"""Answers in the last sentence: a conclusion, "Therefore ... is 42.", or a statement, "The sum is 42."."""

import re

from outcome_rl.outcomes.extraction.announcements import CALCULATION, CONCLUSION
from outcome_rl.outcomes.extraction.answer import DIGIT, answer_at, bare, sentence_ends
from outcome_rl.outcomes.extraction.statement import QUANTITY, UNSETTLED, changed_behind, head, said
from outcome_rl.outcomes.outcome import Outcome

# `The area is 21 square units.`, `The sum of the numbers is 12.`: a value, and at most a unit behind it.
_STATEMENT = re.compile(
    r"\s*The (?:(?:[A-Za-z'’-]+|\$[^$\n]+\$) ){1,14}(?:(?:is|are)(?: equal to)?|equals) "
    rf"(?:{CALCULATION})?(?:{QUANTITY})(?: (?!of\b)[A-Za-z/²³]+){{0,3}}\s*[.!。]"
)
_MAX_CONCLUSION = 300
_CLOSES = re.compile(r"(?<=[.!?。])[\"'”’»](?:\s{0,4}[}`]){0,4}\Z|(?<=[.!?。])(?:\s{0,4}[}`]){1,4}\Z")
_STOP = re.compile(r"[.!。！।۔$)*]|.\s*[*_]")  # emphasis closes a sentence, too


def conclusion(text: str, seen: str, of_reasoning: bool = False) -> Outcome | None:
    """Read a last sentence that draws a conclusion or states a value: the first quantities behind its last verb.

    A line without a full stop was cut off, and has none. A last line that only calls out says nothing of the answer.

    Args:
        text: what is read; emphasis closes a sentence, too.
        seen: its view.
        of_reasoning: the text follows the reasoning, which it concludes.
    """
    starts, end = _last_line(seen)
    if not 0 < end - starts[-1] <= _MAX_CONCLUSION or not (of_reasoning or _STOP.match(text, end - 1)):
        return None
    start = next((at for at in reversed(starts) if CONCLUSION.match(seen, at, end)), None)
    is_drawn = start is not None
    if start is None:
        start = starts[-1]
        states = of_reasoning or _STATEMENT.fullmatch(seen, start, end)
        if not states or UNSETTLED.search(seen, start, end):
            return None
    span = head(seen, start, end)
    if span and not is_drawn and changed_behind(seen, span[1], end):
        return None
    return span and answer_at(seen, *span, "conclusion")


# A later sentence that takes an answer back: `Wait, I made a mistake. The correct value is 15.`
_TAKES_BACK = re.compile(
    r"(?i)(?:(?<=[.!?\n])|\A)[\s}`\"'*]{0,9}+(?:(?:oh|but|no|hmm|ah|okay|well|however|actually"
    r"|upon [a-z-]{2,12})[,.!]?\s){0,2}"
    r"(?:(?:wait|hold on|hmm|oops|sorry|scratch|strike|edit|correction|correcting|actually|on second thought"
    r"|my mistake)\b|no[,.!]|(?:I )?apolog"
    r"|let me (?:correct|fix|redo|re-?)|(?:I|we|there|that|this)\b(?![^.\n]{0,40}\bcommon\b)[^.\n]{0,40}\b(?:mistake"
    r"|error|wrong|incorrect|not right|mis[a-z]{3,10}ed"
    r"|misread|forgot|correct myself))"
)
_NEW_VALUE = re.compile(
    r"(?i)(?=[^!?\n]{0,60}[A-Za-z\u3040-\u9fff])[^!?\n]{0,60}?(?:(?<![a-z])(?:is|are|be|equals?|to|gives?|makes?"
    r"|leaves?|gets?|obtain|[=:]))\s{1,3}"
    r"(?=\S)"
)


def corrected(text: str, start: int) -> Outcome | None:
    """Return the value that the last sentence states, if what follows an answer takes it back."""
    takes_back = _TAKES_BACK.search(text, start)
    if takes_back is None:
        return None
    starts, end = _last_line(text)
    at = max(starts[-1], takes_back.end())
    at += len(text[at:end]) - len(text[at:end].lstrip(" ,:.!"))
    value = _NEW_VALUE.match(text, at, end) if 0 < end - at <= _MAX_CONCLUSION and text[end - 1] != "?" else None
    answer = value and said(text[:end], value.end())
    return answer._replace(source="conclusion") if answer and bare(answer.text) else None


def _last_line(text: str) -> tuple[list[int], int]:
    """Return where the sentences of the last line that says something begin, and where it ends."""
    end = len(text.rstrip())
    if closed := _CLOSES.search(text, max(0, end - 20), end):  # of JSON, or of a program that prints the text
        end = closed.start()
    start = text.rfind("\n", 0, end) + 1
    if start and text[end - 1] in "!?" and DIGIT.search(text, start) is None:
        end = len(text[:start].rstrip())
        start = text.rfind("\n", 0, end) + 1
    stops = sentence_ends(text, max(start, end - _MAX_CONCLUSION), end)
    return [start, *(stop.end() for stop in stops if stop.end() < end)], end
