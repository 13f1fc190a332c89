"""Answers in the last sentence: a conclusion, "Therefore ... is 42.", or a statement, "The sum is 42."."""

import re
from itertools import pairwise

from outcome_rl.outcomes.extraction.announcements import CALCULATION, CONCLUSION
from outcome_rl.outcomes.extraction.answer import DIGIT, NAME, SENTENCE_END, UNSETTLED, answer_at
from outcome_rl.outcomes.outcome import Outcome

VERB = r"\b(?:is|are|equals?|es|son|est|sont|é|são|ist|sind)\b|[=是为多少]|等于"
_TERM = (
    r"(?:[0-9](?:[0-9,]*[0-9])?(?:\.[0-9]+|:[0-9]+(?: ?[AaPp]\.?[Mm]\b)?)?(?: [0-9]+/[0-9]+|/[0-9]+)?"
    r"|(?<= )[inkx√π](?![A-Za-z]))(?:[inkxyπ√][0-9]*(?![A-Za-z]))?(?:\^\{?[-−]?[0-9A-Za-z]+\}?|[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)?"
)
_TUPLE = r"[(\[][-−]?[0-9][0-9./]*(?:, ?[-−]?[0-9][0-9./]*)+[)\]]"
_QUANTITY = (
    r"\$\$?[^$\n]+\$\$?(?![0-9])|\\\([^\n]*?\\\)|\\\[[^\n]*?\\\]|-?\\[dt]?frac\{[^{}\n]{1,20}\}\{[^{}\n]{1,20}\}"
    rf"|{_TUPLE}"
    r"|(?<![A-Za-z0-9_.^√])(?<![-+−×·*/^] )(?<![0-9a-zπ)][-+−×·*/])"  # no part of a formula
    rf"(?>[-−]?[$€£]?(?=[0-9]){_TERM}(?:\s?(?:[-+−×·*^/])\s?{_TERM})*(?:\s?\\?%)?)"
    r"(?![√π(]|\\[a-z]|\s?[-+−×·*/<>≤≥]\s?[A-Za-z(√π\\$])"
)
_QUANTITY_OR_VERB = re.compile(rf"{_QUANTITY}|({VERB})")
# Between the quantities of a list.
_LISTED = re.compile(rf"\s*(?:[,;]\s*(?:(?:and|or)\s+)?|(?:and|or)\s+)(?:{NAME})?")
# `The area is 21 square units.`, `The sum of the numbers is 12.`: a value, and at most a unit behind it.
_STATEMENT = re.compile(
    r"\s*The (?:(?:[A-Za-z'’-]+|\$[^$\n]+\$) ){1,14}(?:(?:is|are)(?: equal to)?|equals) "
    rf"(?:{CALCULATION})?(?:{_QUANTITY})(?: (?!of\b)[A-Za-z/²³]+){{0,3}}\s*[.!。]"
)
_MAX_CONCLUSION = 300
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
    if start is None:
        start = starts[-1]
        states = of_reasoning or _STATEMENT.fullmatch(seen, start, end)
        if not states or UNSETTLED.search(seen, start, end):
            return None
    span = concluded(seen, start, end)
    return span and answer_at(seen, *span, "conclusion")


def _last_line(text: str) -> tuple[list[int], int]:
    """Return where the sentences of the last line that says something begin, and where it ends."""
    end = len(text.rstrip())
    start = text.rfind("\n", 0, end) + 1
    if start and text[end - 1] in "!?" and DIGIT.search(text, start) is None:
        end = len(text[:start].rstrip())
        start = text.rfind("\n", 0, end) + 1
    stops = SENTENCE_END.finditer(text, max(start, end - _MAX_CONCLUSION), end)
    return [start, *(stop.end() for stop in stops if stop.end() < end)], end


def concluded(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the first quantity behind the last verb of a sentence, or its only one; none of a list."""
    quantities, behind = list[tuple[int, int]](), -1
    for found in _QUANTITY_OR_VERB.finditer(text, start, end):
        if found[1]:
            behind = len(quantities)
        else:
            quantities.append(found.span())
    if not 0 <= behind < len(quantities):
        if len(quantities) != 1:
            return None
        behind = 0
    beside = pairwise(quantities[max(0, behind - 1) : behind + 2])
    is_listed = any(_LISTED.fullmatch(text, one[1], other[0]) for one, other in beside)
    return None if is_listed else quantities[behind]
