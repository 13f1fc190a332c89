"""The reading of short texts that all rules of extraction share."""

import re
from collections import deque
from string import whitespace

from outcome_rl.outcomes.outcome import Outcome, Source

# A `$` that is not closed on its line, or that the next number follows, is a currency sign.
FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$(?![0-9])|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
DIGIT = re.compile("[0-9]")
BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
# `x_1 = `, `\theta = `, `f(2) = `
NAME = (
    r"(?<![A-Za-z\\])(?:\\[A-Za-z]+|[A-Za-z])(?:_(?:[A-Za-z0-9]|\{[A-Za-z0-9]+\}))?"
    r"(?:(?:\\!|\\left)*\([^()=\n]{1,30}\))?\s*=\s*"
)
# The search for a set is fast, and then it is seen what stands around.
SENTENCE_END = re.compile(r"[\n.!?。！？।۔<](?:(?<=[\n。！？।۔])|(?<=[.!?])(?=\s|$)|(?<=<)[|｜])")
# Words by which a number is not the answer: they plan, limit, deny or change it, or give a step.
SCALES = r"dozens?|hundred|score|times|(?:thousand|[mbtr]+illion|lakh|crore)s?"
UNSETTLED = re.compile(
    r"(?i)\b(?:if|when|not|never|no|false|wrong|incorrect|mistake|guess|plan|task|goal|trick|approach|step|first|next|options?"
    rf"|choices?|cases?|problem|question|equation|given|known|example|half|twice|double|triple|{SCALES}"
    r"|more|less|than|fewer|least|most|between|(?<![0-9] )squared?|cubed?|root"
    r"|logarithm|inverse|percent|about|nearly|almost)\b|n't\b"
)
SPECIAL_TOKEN = re.compile(r"<[|｜][^<>\n]{1,40}[|｜]>|</?s>|<(?:eos|bos|pad|unk|(?:end|start)_of_turn)>")


def moved(answer: Outcome, offset: int) -> Outcome:
    """Return an answer whose text began at `offset` of another one."""
    return answer._replace(start=answer.start + offset, end=answer.end + offset) if offset else answer


def stripped(
    text: str, start: int, end: int, opening: str | None = None, closing: str | None = None
) -> tuple[int, int]:
    """Narrow [start, end) past the characters at its edges; spaces, if they are not named."""
    start = end - len(text[start:end].lstrip(opening))
    return start, start + len(text[start:end].rstrip(closing))


def answer_at(response: str, start: int, end: int, source: Source) -> Outcome | None:
    """Return the span as an answer, without math delimiters, Markdown emphasis and closing punctuation."""
    is_formula = response.startswith(_CLOSES_FORMULA, end)
    start, end = stripped(response, start, end, _EMPHASIS)
    if formula := FORMULA.match(response, start, end):
        start, end = formula.span(formula.lastindex or 0)
    if special := SPECIAL_TOKEN.search(response, start, end):
        end = special.start()
    goes_on = response[start:end].rstrip().endswith((",...", ", ..."))  # a list, `1, 2, ...`
    marks = ".,;:。，；：" if formula or is_formula else ".,;:!。，；："  # the `!` of `$n!$` is a factorial
    start, end = stripped(response, start, end, None, None if goes_on else _EMPHASIS + marks)
    if choice := _MARKED_CHOICE.fullmatch(response, start, end):
        start, end = choice.span(choice.lastindex or 0)
    return Outcome(response[start:end], start, end, source=source) if start < end else None


_MARKED_CHOICE = re.compile(r"\([\s*]+([A-J])[\s*]+\)|\[([A-J])\]")  # `(**C**)`, `[C]`
_CLOSES_FORMULA = ("$", r"\)", r"\]")
_EMPHASIS = "*_`" + whitespace + "\xa0\u2009\u202f\u3000"


_WORD = re.compile(r"(?<![A-Za-z\\])(?<![0-9])(?<![0-9] )(?!(?:and|or)\b)[^\W\d_]{2,}")  # but for a unit
_FEW_WORDS = re.compile(r"[^\W\d_]+(?:[ -][^\W\d_]+)?")
_MATHEMATICS = re.compile(r"[0-9\\=]|\W*[A-Z]\W*$")
_AROUND = " \t\n$*_`.,;:!。，；：()[]\\"


def bare(text: str) -> Outcome | None:
    """Read `10`, `$x = 2$`, `5 cm`, `(C)` or two words that are all of a text; a sentence is no answer."""
    start, end = stripped(text, 0, len(text))
    answer = answer_at(text, start, end, "line") if end - start <= 100 else None
    if answer is None or "\n" in answer.text:
        return None
    if _FEW_WORDS.fullmatch(answer.text):  # `Yes.`, `No solution`, `Evelyn`
        return answer
    around = (text[start : answer.start] + text[answer.end : end]).strip(_AROUND)
    return None if around or _WORD.search(answer.text) or not _MATHEMATICS.search(answer.text) else answer


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)
