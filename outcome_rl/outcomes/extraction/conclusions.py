"""Answers in the last sentence: a conclusion, "Therefore ... is 42.", or a statement, "The sum is 42."."""

import re

from outcome_rl.outcomes.extraction.announcements import CONCLUSION, SUPPOSED
from outcome_rl.outcomes.extraction.answer import DIGIT, FORMULA, NAMED, answer_at, bare, sentence_ends, words_of
from outcome_rl.outcomes.extraction.statement import BULLET, quantity_of, said
from outcome_rl.outcomes.outcome import Outcome

# A line that computes a quantity, `= 105 pounds`, and is not cut off.
_COMPUTES = re.compile(
    r"[^\n]{0,200}=\s{0,9}(?:[$€£][0-9][0-9,.]{0,20}|[0-9][0-9,.]{0,20}%?(?: [A-Za-z²³]{3,20}){1,3})"
    r"|[A-Za-z][^\n=]{0,200}[A-Za-z] [a-z]{2,20} [^\n=]{0,50}=[^=\n]{1,99}[-+*/×x÷][^=\n]{1,99}"
    r"=\s{0,9}[0-9][0-9,.]{0,20}"
)
_CLAUSE = re.compile(r"\s*+[A-Z$](?=[^\n]{0,200}[a-z]{2} )")
# Denied, planned, or cut off in a decimal.
_DENIES = re.compile(
    rf"{SUPPOSED}|n't\b|not\b|\b[Ww]e (?:need|want|must|should|have to)\b|\b[Ll]et\b|\.\.\Z|[=*][^\n]{{0,99}}[0-9]\.\Z"
)
# Before a number that ends its sentence; else it is a name, `of degree 3`.
_LINKED = re.compile(r"(?:\b(?:is|are|was|were|be|to|gives?|get|obtain|equals)|=)\s{0,3}[^\s]?\Z|[$€£]\Z")
_PLAIN = re.compile(r"[$€£]?[-−]?[0-9][0-9,./:-]{0,30}%?(?: ?[A-Za-z./²³° ]{1,30})?")
_MAX_CONCLUSION = 300
_CLOSES = re.compile(r"(?<=[.!?。])[\"'”’»](?:\s{0,4}[}`]){0,4}\Z|(?<=[.!?。])(?:\s{0,4}[}`]){1,4}\Z")
_STOP = re.compile(r"[.!。！।۔$)*]|.\s*[*_]")  # emphasis closes a sentence, too


def conclusion(text: str, seen: str, of_reasoning: bool = False) -> Outcome | None:
    """Read the quantity of a last sentence that draws a conclusion, states a value, or computes one.

    A line without a full stop was cut off, and has none, unless it is all that follows the reasoning. A last line that
    only calls out says nothing of the answer.

    Args:
        text: what is read; emphasis closes a sentence, too.
        seen: its view.
        of_reasoning: the text follows the reasoning, which it concludes.
    """
    starts, end = _last_line(seen)
    if not 0 < end - starts[-1] <= _MAX_CONCLUSION:
        return None
    computes = _COMPUTES.fullmatch(seen, starts[-1], end)
    if not (computes or _STOP.match(text, end - 1) or (of_reasoning and not seen[: starts[0]].strip())):
        return None
    lead = next(filter(None, (CONCLUSION.match(seen, at, end) for at in reversed(starts))), None)
    mark = lead or BULLET.match(seen, starts[-1], end)
    start = mark.end() if mark else starts[-1]
    is_concluded = bool(of_reasoning or computes or lead)
    if not (is_concluded or _is_clause(seen, start, end)):
        return None
    found = quantity_of(seen, start, end)
    if found is None or not (is_concluded or _is_stated(seen, start, end, *found)):
        return None
    # A letter alone may be a name, `5 m`; its unit would make two outcomes of one.
    return answer_at(seen, found[0], found[2 if found[2] - found[1] > 2 else 1], "conclusion")


def _is_clause(seen: str, start: int, end: int) -> bool:
    return seen[end - 1] in ".!。" and bool(_CLAUSE.match(seen, start, end)) and not _DENIES.search(seen, start, end)


def _is_stated(seen: str, start: int, end: int, at: int, stop: int, after_unit: int) -> bool:
    """Whether a clause states its quantity: a formula behind a verb, or a plain number."""
    is_formula = FORMULA.fullmatch(seen, at, stop) is not None
    is_linked = _LINKED.search(seen, max(start, at - 9), at + (not is_formula)) is not None
    if is_formula:
        return is_linked
    is_name = not is_linked and after_unit == end - 1 and ":" not in seen[at:stop]
    return _PLAIN.fullmatch(seen, at, after_unit) is not None and not is_name


# A later sentence that takes an answer back: `Wait, I made a mistake. The correct value is 15.`
_TAKES_BACK = re.compile(
    r"(?i)(?:(?<=[.!?\n])|\A)[\s}`\"'*()]{0,9}+(?:(?:oh|but|no|hmm|ah|okay|well|however|actually"
    r"|upon [a-z-]{2,12})[,.!]?\s){0,2}"
    rf"(?:(?:(?:{words_of('correction')})\b|no[,.!])(?:[\s,.!—–-]{{1,9}}(?:no|wait|that)\b)?"
    r"|(?=(?:it|that|this) should (?:actually|really|instead|rather) be\b)|let me (?:correct|fix|redo|re-?)"
    rf"|(?:I|we|there|that|this)\b(?![^.\n]{{0,40}}\bcommon\b)[^.\n]{{0,40}}\b(?:{words_of('fault')}))"
)


def corrected(text: str, start: int) -> Outcome | None:
    """Return the value that the last sentence states, if what follows an answer takes it back."""
    takes_back = _TAKES_BACK.search(text, start)
    if takes_back is None:
        return None
    starts, end = _last_line(text)
    at = max(starts[-1], takes_back.end())
    at += len(text[at:end]) - len(text[at:end].lstrip(" ,:.!—–-)*"))
    is_cut_off = not _STOP.match(text, end - 1) and takes_back.end() < starts[-1]
    if not 0 < end - at <= _MAX_CONCLUSION or is_cut_off:
        return None
    answer = said(text[:end], at)
    is_new = answer and bare(answer.text) and NAMED.search(answer.text) and "=" not in text[at:end]
    return answer._replace(source="conclusion") if answer and is_new else None


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
