"""An answer with its place in the response, and the reading of short texts that all rules share."""

import re
from typing import Literal, NamedTuple

AnswerSource = Literal["boxed", "tag", "hash", "phrase", "conclusion", "line", "bold", "given", "function"]


class Answer(NamedTuple):
    """Final answer with its character span: `text == response[start:end]`, without surrounding spaces.

    `source` names the rule that found it; "given" marks an answer that was passed without its response, and "function"
    the outcome of an outcome function: then `text` is the outcome, and the span is empty if the function gave none.
    """

    text: str
    start: int
    end: int
    source: AnswerSource


DIGIT = re.compile("[0-9]")
BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
NAME = r"(?<![A-Za-z\\])[A-Za-z](?:_(?:[A-Za-z0-9]|\{[A-Za-z0-9]+\}))?\s*=\s*"
_NAME_BEFORE = re.compile(rf"{NAME}\Z")
_MAX_NAME = 40
# The search for a set is fast, and then it is seen what stands around.
SENTENCE_END = re.compile(r"[\n.!?。！？।۔<](?:(?<=[\n。！？।۔])|(?<=[.!?])(?=\s|$)|(?<=<)[|｜])")
# Words that change the number beside them.
QUALIFYING = re.compile(
    r"\b(?:half|twice|double|triple|dozens?|(?:thousand|[mbtr]+illion|lakh|crore)s?|more|less|fewer|least|most|between"
    r"|squared?|cubed?|root|logarithm|inverse|percent|about|nearly|almost)\b",
    re.IGNORECASE,
)
SPECIAL_TOKEN = re.compile(r"<[|｜][^<>\n]{1,40}[|｜]>|</?s>|<(?:eos|bos|pad|unk|(?:end|start)_of_turn)>")


def moved(answer: Answer, offset: int) -> Answer:
    """Return an answer whose text began at `offset` of another one."""
    return answer._replace(start=answer.start + offset, end=answer.end + offset) if offset else answer


def stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """Narrow [start, end) past the spaces at its edges."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def answer_at(response: str, start: int, end: int, source: AnswerSource) -> Answer | None:
    """Return the span as an answer, without math delimiters, Markdown emphasis and closing punctuation."""
    while start < end and (response[start] in _EMPHASIS or response[start].isspace()):
        start += 1
    start, end = formula_at(response, start, end) or (start, end)
    if special := SPECIAL_TOKEN.search(response, start, end):
        end = special.start()
    goes_on = response[start:end].rstrip().endswith((",...", ", ..."))  # a list, `1, 2, ...`
    while not goes_on and start < end and (response[end - 1] in _CLOSING or response[end - 1].isspace()):
        end -= 1
    start, end = stripped(response, start, end)
    if choice := _IN_BRACKETS.fullmatch(response, start, end):
        start, end = choice.span(choice.lastindex or 0)
    return Answer(response[start:end], start, end, source) if start < end else None


_IN_BRACKETS = re.compile(r"\[([A-J])\]|\([\s*]+([A-J])[\s*]+\)")
_EMPHASIS = "*_`"
_CLOSING = _EMPHASIS + ".,;:!。，；："


def formula_at(response: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the inside of the formula that begins at `start`; a `$` not closed on its line is a currency sign."""
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if response.startswith(opening, start, end):
            start += len(opening)
            close = response.find(closing, start, end)
            return None if close < 0 or (opening == "$" and "\n" in response[start:close]) else (start, close)
    return None


_MAX_BARE_LINE = 100
_WORD = re.compile(r"(?<![A-Za-z\\])(?<![0-9])(?<![0-9] )(?!(?:and|or)\b)[^\W\d_]{2,}")  # but for a unit
_FEW_WORDS = re.compile(r"[^\W\d_]+(?:[ -][^\W\d_]+)?")
_MATHEMATICS = re.compile(r"[0-9\\=]|\W*[A-Z]\W*$")
_AROUND = re.compile(r"[\s$*_`.,;:!。，；：()\[\]\\]*")


def bare(text: str, offset: int) -> Answer | None:
    """Read `10`, `$x = 2$`, `5 cm` or `(C)` that is all of a text without a box; a sentence is no answer."""
    start, end = stripped(text, 0, len(text))
    answer = answer_at(text, start, end, "line") if 0 < end - start <= _MAX_BARE_LINE else None
    if answer is None or "\n" in answer.text or BOX.search(text):
        return None
    if _FEW_WORDS.fullmatch(answer.text):  # `Yes.`, `No solution`, `Evelyn`
        return moved(answer, offset)
    if _WORD.search(answer.text):
        return None
    around = text[start : answer.start] + text[answer.end : end]
    if _MATHEMATICS.search(answer.text) is None or _AROUND.fullmatch(around) is None:
        return None
    return moved(answer, offset)


def with_name(response: str, start: int) -> int:
    """Return where the name of a value begins that begins at `start`: `x = ` of `x = \\boxed{2}`."""
    name = _NAME_BEFORE.search(response[max(0, start - _MAX_NAME) : start])
    return start if name is None else start - len(name[0])


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = None
    for last in pattern.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    return last
