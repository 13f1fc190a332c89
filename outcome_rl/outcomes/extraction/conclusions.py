"""Answers in the last sentence: a conclusion, "Therefore ... is 42.", a statement, "The sum is 42.", or bold type."""

import re
from functools import lru_cache
from itertools import pairwise

from outcome_rl.outcomes.extraction.answer import (
    DIGIT,
    NAME,
    QUALIFYING,
    SENTENCE_END,
    Answer,
    answer_at,
    bare,
)

_CONCLUSION = re.compile(
    r"[ \t*_]*+(?:so|consequently|finally|overall|in conclusion|因此|所以|故|答案?[:：]|∴|\$?\\therefore"
    r"|por (?:lo )?tanto|portanto|donc|ainsi|daher|folglich|следовательно|итак"
    r"|(?:the )?(?:final )?(?:result|solution) ?(?:is|equals|=|:)|[^.!?\n]{0,100}\b(?:therefore|thus|hence)\b)",
    re.IGNORECASE,
)
_VERB = re.compile(r"\b(?:is|are|equals?|es|son|est|sont|é|são|ist|sind)\b|[=是为多少]|等于")
_TERM = (
    r"(?:[0-9](?:[0-9,]*[0-9])?(?:\.[0-9]+|:[0-9]+(?: ?[AaPp]\.?[Mm]\b)?)?(?: [0-9]+/[0-9]+|/[0-9]+)?"
    r"|(?<= )[inkx√π](?![A-Za-z]))(?:[inkxyπ√][0-9]*(?![A-Za-z]))?(?:\^\{?[-−]?[0-9A-Za-z]+\}?|[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)?"
)
_TUPLE = r"[(\[][-−]?[0-9][0-9./]*(?:, ?[-−]?[0-9][0-9./]*)+[)\]]"
_QUANTITY = re.compile(
    r"\$\$?[^$\n]+\$\$?(?![0-9])|\\\([^\n]*?\\\)|\\\[[^\n]*?\\\]|-?\\[dt]?frac\{[^{}\n]{1,20}\}\{[^{}\n]{1,20}\}"
    rf"|{_TUPLE}"
    r"|(?<![A-Za-z0-9_.^√])(?<![-+−×·*/^] )(?<![0-9a-z)][-+−×·*/])"  # no part of a formula
    rf"(?>[-−]?[$€£]?(?=[0-9]){_TERM}(?:\s?(?:[-+−×·*^/])\s?{_TERM})*(?:\s?\\?%)?)"
    r"(?![√π(]|\\[a-z]|\s?[-+−×·*/<>≤≥]\s?[A-Za-z(√π\\$])"
)
# Between the quantities of a list.
_LISTED = re.compile(rf"\s*(?:[,;]\s*(?:(?:and|or)\s+)?|(?:and|or)\s+)(?:{NAME})?")
_STATEMENT = re.compile(r"\s*[*_]{0,2}The (?:(?:[A-Za-z'’-]+|\$[^$\n]+\$) ){1,14}(?:(?:is|are)(?: equal to)?|equals) ")
_UNIT = re.compile(r"((?: [A-Za-z]+){0,3})[*_]{0,2}[.!。]")
# A statement that plans, limits or denies, or gives a step.
_UNSETTLED = re.compile(
    r"\b(?:if|when|not|never|no|false|wrong|incorrect|mistake|guess|plan|task|goal|trick|approach|step|first|next|options?"
    r"|choices?|cases?|problem|question|equation|given|known|example|hundred|score|times|than|of)\b|n't\b",
    re.IGNORECASE,
)
_MAX_CONCLUSION = 300
_PICTURES = " \n\t" + "".join(map(chr, (*range(0x1F300, 0x1FB00), *range(0x2600, 0x27C0), 0xFE0F)))
_FULL_STOPS = ".!。！$)*"


def conclusion(response: str) -> Answer | None:
    """Read a last sentence that draws a conclusion: the first quantities behind its last verb, or its only one.

    A line without a full stop was cut off, and has none. A last line that only calls out says nothing of the answer.
    """
    starts, end = _last_line(response)
    start = next((at for at in reversed(starts) if _CONCLUSION.match(response, at, end)), end)
    span = _concluded(response, start, end) if _is_sentence(response, start, end) else None
    return span and answer_at(response, *span, "conclusion")


def statement(response: str) -> Answer | None:
    """Read a last sentence that states a value and at most a unit behind it, such as `The area is 21 square m`."""
    starts, end = _last_line(response)
    subject = _STATEMENT.match(response, starts[-1], end)
    value = subject and _QUANTITY.match(response, subject.end(), end)
    unit = value and _UNIT.fullmatch(response, value.end(), end)
    if not (subject and value and unit):
        return None
    around = subject[0].replace(" of ", " ") + unit[1].removeprefix(" square")
    if _UNSETTLED.search(around) or QUALIFYING.search(around):
        return None
    return answer_at(response, *value.span(), "conclusion")


def only_quantity(response: str) -> Answer | None:
    """Read the one quantity of a last sentence behind the reasoning, such as `That gives 18`."""
    starts, end = _last_line(response)
    if end - starts[-1] > _MAX_CONCLUSION or _UNSETTLED.search(response, starts[-1], end):
        return None
    span = _concluded(response, starts[-1], end)
    return span and answer_at(response, *span, "conclusion")


@lru_cache(maxsize=1)  # three rules ask
def _last_line(response: str) -> tuple[list[int], int]:
    """Return where the sentences of the last line that says something begin, and where it ends."""
    end = len(response.rstrip(_PICTURES))
    start = response.rfind("\n", 0, end) + 1
    if start and response[end - 1] in "!?" and DIGIT.search(response, start) is None:
        end = len(response[:start].rstrip())
        start = response.rfind("\n", 0, end) + 1
    stops = SENTENCE_END.finditer(response, max(start, end - _MAX_CONCLUSION), end)
    return [start, *(stop.end() for stop in stops if stop.end() < end)], end


def _is_sentence(response: str, start: int, end: int) -> bool:
    return 0 < end - start <= _MAX_CONCLUSION and response[end - 1] in _FULL_STOPS


def _concluded(response: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the first quantity behind the last verb of a sentence, or its only one; none of a list."""
    quantities = [match.span() for match in _QUANTITY.finditer(response, start, end)]
    verbs = [
        verb.end()
        for verb in _VERB.finditer(response, start, end)
        if not any(low <= verb.start() < high for low, high in quantities)
    ]
    only = 0 if len(quantities) == 1 else None
    at = next((i for i, span in enumerate(quantities) if verbs and span[0] >= verbs[-1]), only)
    if at is None:
        return None
    beside = pairwise(quantities[max(0, at - 1) : at + 2])
    is_listed = any(_LISTED.fullmatch(response, one[1], other[0]) for one, other in beside)
    return None if is_listed else quantities[at]


_BOLD = re.compile(r"\*\*([^*\n]{1,100})\*\*(?!:)")


def bold(response: str) -> Answer | None:
    """Read the one quantity in bold type of a last line that says no more: `**12**`, `It takes **5 hours**.`."""
    start = response.rfind("\n") + 1
    if len(response) - start > _MAX_CONCLUSION or response[-1:] not in _FULL_STOPS:
        return None
    marked = _BOLD.finditer(response, start)
    spans = [match.span(1) for match in marked if DIGIT.search(match[1]) and match[1][-1] != ":"]
    if len(spans) != 1:
        return None
    begin, end = spans[0]
    if answer := bare(response[begin:end], begin):
        return answer._replace(source="bold")
    span = _concluded(response, begin, end) if _VERB.search(response, begin, end) else None
    return span and answer_at(response, *span, "bold")
