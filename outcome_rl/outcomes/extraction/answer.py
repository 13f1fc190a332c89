"""The reading of short texts that all rules of extraction share."""

import re
from collections import deque
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from string import whitespace

from outcome_rl.outcomes.outcome import Outcome, Source

_WORDS_TABLE = files(__package__).joinpath("words.tsv").read_text("utf-8").splitlines()
WORDS = [tuple(line.split("\t")) for line in _WORDS_TABLE if not line.startswith("# ")]
"""Rows of `words.tsv`: a kind, a pattern of words, a text that has them, and one that looks alike."""


def words_of(kind: str) -> str:
    """Return the pattern of all words of a kind."""
    return "|".join(words for name, words, *_ in WORDS if name == kind)


# A `$` that is not closed on its line, or that the next number follows, is a currency sign.
FORMULA = re.compile(
    r"\$\$((?:[^$]|\$(?!\$))++)\$\$|\$([^$\n]++)\$(?![0-9])|\\\(((?:[^\\]|\\(?!\)))++)\\\)|\\\[((?:[^\\]|\\(?!\]))++)\\\]"
)
DIGIT = re.compile("[0-9]")
NAMED = re.compile(r"[0-9]|\A\(?[A-J]\b")  # a number, or a choice
BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
# `x_1 = `, `\theta = `, `f(2) = `
NAME = (
    r"(?<![A-Za-z\\])(?:\\[A-Za-z]+|[A-Za-z])(?:_(?:[A-Za-z0-9]|\{[A-Za-z0-9]+\}))?"
    r"(?:(?:\\!|\\left)*\([^()=\n]{1,30}\))?\s*+=\s*+"
)
# The search for a set is fast, and then it is seen what stands around. A quotation may close behind a full stop.
SENTENCE_END = re.compile(
    r"[\n.!?。！？।۔<](?:(?<=[\n。！？।۔])|(?<=[.!?])(?<!\\!)(?=[\"'”’»]{0,2}(?:\s|$))|(?<=<)[|｜])"
)
# `<|im_end|>`, `<eoa>`, `</output>`, `[END]`, `[/INST]`: no formula has such a sign.
SPECIAL_TOKEN = re.compile(words_of("token"))


@cache
def _abbreviations() -> tuple[frozenset[str], frozenset[str]]:
    """Return titles, which stand before a name, and other abbreviations."""
    table = files(__package__).joinpath("abbreviations.txt").read_text("utf-8").partition("\n\n")
    titles = (line for line in table[0].splitlines() if line[0] != "#")
    return frozenset(" ".join(titles).split()), frozenset(table[2].split())


def sentence_ends(text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """Yield where sentences end: not behind `Mrs.`, nor behind `approx.` before a small letter or a digit."""
    for stop in SENTENCE_END.finditer(text, start, end):
        word = (
            _LAST_WORD.split(text[max(start, stop.start() - 16) : stop.start()])[-1].lower() if stop[0] == "." else ""
        )
        if word:
            titles, others = _abbreviations()
            goes_on = text[stop.end() : stop.end() + 3].lstrip(" ")[:1]
            if word in titles or (word in others and (goes_on.islower() or goes_on in {*"0123456789$€£"})):
                continue
        yield stop


_LAST_WORD = re.compile(r"[\s(\[\"'$,:]")


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
    marks = ".,;:。，；：" if formula or is_formula else ".,;:!。，；："  # the `!` of `$n!$` is a factorial
    start, end = stripped(response, start, end, None, _EMPHASIS + marks)
    closed = _QUOTES.get(response[end - 1]) if start < end else None
    if closed and closed not in response[start : end - 1]:  # the end of a string of JSON, or of a table
        start, end = stripped(response, start, end - 1, None, _EMPHASIS + marks)
    if choice := _MARKED_CHOICE.fullmatch(response, start, end):
        start, end = choice.span(choice.lastindex or 0)
    return Outcome(response[start:end], start, end, source=source) if start < end else None


_QUOTES = {'"': '"', "|": "|", "”": "“", "»": "«", "’": "‘"}
_MARKED_CHOICE = re.compile(r"\([\s*]+([A-J])[\s*]+\)|\[([A-J]|[A-Za-z]{2,20})\]")  # `(**C**)`, `[C]`, `[Yes]`
_CLOSES_FORMULA = ("$", r"\)", r"\]")
_EMPHASIS = "*_`" + whitespace + "\xa0\u2009\u202f\u3000"


_WORD = re.compile(r"(?<![A-Za-z\\])(?<![0-9])(?<![0-9] )(?!(?:and|or)\b)[^\W\d_]{2,}")  # but for a unit
_FEW_WORDS = re.compile(r"[^\W\d_]+(?:[ -][^\W\d_]+)?|[A-Z\\]\S{1,40}")
_MATHEMATICS = re.compile(r"[0-9\\=]|[A-Z]\W*+\Z")
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
