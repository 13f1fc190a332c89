"""Answers that a phrase or mark announces: "the answer is ...", a tag, `####`; or that are the whole text."""

import re
from collections.abc import Iterator
from itertools import islice

from outcome_rl.outcomes.extraction import announcements as words
from outcome_rl.outcomes.extraction.answer import (
    DIGIT,
    FORMULA,
    SCALES,
    SENTENCE_END,
    UNSETTLED,
    answer_at,
    bare,
    last_match,
)
from outcome_rl.outcomes.extraction.conclusions import VERB, concluded
from outcome_rl.outcomes.outcome import Outcome

_QUOTED = re.compile(r"([\"'])([^\n]{1,100}?)\s*\1")
# A choice with its text: words without a digit; `A. 12` is read whole.
_LABEL = re.compile(
    r"(\(?[A-J]\)|\[[A-J]\]|[A-J](?=[.:]|\s+[-–—]\s))(?:[.:)\]]|(?<=[)\]])|(?=\s+[-–—]))[ \t]+(?=[A-Za-z'(–—-])"
    r"(?![^\n]*\b[A-J]\b[).:]?)[^0-9\n$\\]*(?:\n|\Z)"
)
# Formulas that are one answer, up to the end of the sentence: `$x = 1$ and $y = 2$.`
_FORMULAS = re.compile(
    r"\$([^$\n]{1,100}(?:\$(?:\s*[,;]\s*|\s*,?\s*(?:and|or)\s+)\$[^$\n]{1,100})+)\$\s*(?:[.!。]|,?\s*respectively|\Z|\n)"
)
_VERDICT = re.compile(r"(?i)(yes|no|true|false)(?=[,;]\s|\s+[-–—]\s)")  # and an explanation
_FORMS = (_FORMULAS, FORMULA, _QUOTED, _LABEL, _VERDICT)
_CHECKED = "correct|right|verified|confirmed|valid|reasonable"
# `not 7`, `not correct`, `wrong`; words that an answer may be, `not possible`, stay one.
_TAKEN_BACK = re.compile(rf"(?i)not\s+(?:(?:equal to\s+)?[-+(]?[0-9$\\]|(?:what|{_CHECKED})\b)|(?:wrong|incorrect)\b")
# It says nothing new, or continues in words ("the answer is consistent with the problem statement").
_PROSE = re.compile(rf"(?is){_CHECKED}|not|.{{101,}}|(?!.*[0-9])(?:.*?(?<!\S)(?>\S*?[^\W\d_]{{2}})\S*+){{4}}.*")
# A sentence, `Answer: Tom has 12 pens.`; the words before a number that change it or describe something by it; and what
# may not stand behind it.
_SENTENCE = re.compile(r"(?=.{0,300}\Z)(?:[A-Z][a-z'’]*\s(?=.*[a-z]{2} )|[\u3040-\u9fff])", re.DOTALL)
_PART_OF = re.compile(r"\b(?:(?<!total )of|by|to|mod|base|from|except|minus|negative|plus|over|point|[A-Z]\w*) $")
_BEHIND = re.compile(rf"[0-9]|{VERB}|^ (?:(?:more|less|fewer) than|or|squared|cubed|percent|{SCALES})\b")


def phrase(text: str) -> Outcome | None:
    """Find the value of the last announcement, up to the end of its formula, clause or line.

    A later one that says nothing new, `the answer is correct` or cut off, is ignored, and `the answer is not 7` cancels
    those before it.
    """
    for start, end in islice(_announced(text), 4):  # each costs a search for its end
        if end:  # `C is the answer`
            return answer_at(text, start, end, "phrase")
        if _TAKEN_BACK.match(text, start):
            break
        if (answer := said(text, start)) and not _PROSE.fullmatch(answer.text):
            return answer
    return None


def result(text: str) -> Outcome | None:
    """Read a last line that names a result, `A: 42`, `Total: 42`, or that is a conclusion of one value, `Thus 42`."""
    start = text.rfind("\n") + 1
    named = words.RESULT.match(text, start)
    opened = named or words.CONCLUDED.match(text, start)
    answer = opened and said(text, opened.end())
    if answer is None or _PROSE.fullmatch(answer.text):
        return None
    if named:
        return answer._replace(source="line")
    is_all = " + " not in answer.text and bare(answer.text) and words.REST.match(text, answer.end)
    return answer._replace(source="conclusion") if is_all else None


def _announced(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the value of every announcement begins, from the last one up, and its end if it stands before."""
    lowered = text.lower()  # as long: the view has no letter that becomes two
    said_words = [word for word in words.ANNOUNCEMENTS if word in lowered]
    places = [(place.start(), word) for word in said_words for place in re.finditer(word, lowered)]
    for at, word in sorted(places, reverse=True):
        if match := words.ANNOUNCEMENTS[word].match(text, at):
            yield match.end(), 0
        elif before := words.BEFORE.search(text, max(0, at - 99), at):
            yield before.span(before.lastindex or 0)


def said(text: str, start: int) -> Outcome | None:
    """Return what is said from `start` on: a formula, a quotation, or words up to a remark or the end of the clause."""
    if head := words.HEAD.match(text, start):
        start = head.end()
    if found := next(filter(None, (form.match(text, start) for form in _FORMS)), None):
        return answer_at(text, *found.span(found.lastindex or 0), "phrase")
    if text.startswith("```", start):  # of a program: the view has no other fence
        return None
    stop = SENTENCE_END.search(text, start)
    end = len(text) if stop is None else stop.start()
    if remark := words.REMARK.search(text, start, end):
        end = remark.start()
    if stop and stop[0] in ".。" and (stated := _stated(text, start, end)):
        return stated
    if closing := words.CLOSING.search(text, max(start, end - 20), end):
        end = closing.start()
    return answer_at(text, start, _balanced(text, start, end), "phrase")


def _stated(text: str, start: int, end: int) -> Outcome | None:
    """Return the one quantity that a sentence states; none of a description, `All multiples of 6`."""
    span = concluded(text, start, end) if _SENTENCE.match(text, start, end) else None
    if span is None or not DIGIT.search(text, *span):
        return None
    changed = UNSETTLED.search(text, start, span[0]) or _PART_OF.search(text, start, span[0])
    return None if changed or _BEHIND.search(text[span[1] : end]) else answer_at(text, *span, "phrase")


_BRACKET = re.compile(r"\\?[()\[\]{}]")


def _balanced(text: str, start: int, end: int) -> int:
    """Return where a bracket closes that was opened before `start`: that of `(Answer: 18)`; else `end`."""
    depth = int(text.startswith(("(", "[", "{"), start))
    for bracket in _BRACKET.finditer(text, start + 1, min(end, start + 200)):
        depth += 1 if bracket[0][-1] in "([{" else -1
        if depth < 0:
            return end if text[start].isalpha() and text.startswith(") ", start + 1) else bracket.start()  # `A) 5`
    return end


_TAG_END = re.compile(r"</(?:(?:final_?)?answer|final)>|\[/(?:final_?)?answer\]", re.IGNORECASE)


def tag(text: str) -> Outcome | None:
    """Find the last complete `<answer>...</answer>` or `[ANSWER]...[/ANSWER]`."""
    close = last_match(_TAG_END, text) if "</" in text or "[/" in text else None
    start = text.rfind(close[0].replace("/", ""), 0, close.start()) if close else -1
    return answer_at(text, start + len(close[0]) - 1, close.start(), "tag") if close and start >= 0 else None


# GSM8K's mark, anywhere; `#### Step 1` is a Markdown heading. What follows begins with a number, names it, `x = 18`,
# or is a choice.
_HASH = re.compile(
    r"(?:####|^#(?= [-−]?[0-9.,]+\Z))[ \t]*+(?:[^=\n#A-Za-z]{1,60}=[ \t]*)?"
    r"((?:[^\s#]*[0-9][^\s#]*|[^=\n#:]{1,60}=[ \t]*[-−]?[0-9][0-9.,/]*)(?: [0-9]+/[0-9]+)?|\(?[A-J]\)?)"
    r"((?:[ \t]+\(?[a-z]+\)?){0,8})[.!]?[ \t`]*(?:$|(?=####))",
    re.MULTILINE,
)


def hash_mark(text: str) -> Outcome | None:
    """Find the last mark `#### 42` (GSM8K), or a last line `# 42`."""
    last = last_match(_HASH, text) if "# " in text or "####" in text else None
    return last and answer_at(text, last.start(1), last.end(2 if UNSETTLED.search(last[2]) else 1), "hash")


_ALONE = re.compile(
    r"[-−]?(?:[$€£]?\.?[0-9][0-9,]{0,40}(?:\.[0-9]+)?(?:/[0-9]+)?%?|\\[dt]?frac\{[0-9]+\}\{[0-9]+\})|\(?[A-J]\)?"
    r"|\$[^$\n]+\$|\\\([^\n]+\\\)|[A-Za-z](?:_[0-9A-Za-z])?[ \t]*=[ \t]*[-−]?[0-9]+(?:\.[0-9]+)?(?:/[0-9]+)?"
    r"|(?:\([A-J]\)|[A-J][.:)])[ \t]++(?![^\n]*(?:\b[A-J]\b|\b(?:is|are|was|were|we|let|said)\b))[^\n]{1,60}"
)


def alone(text: str) -> Outcome | None:
    """Read a number, a formula between its signs, `x = 2`, or a choice with or without its text, that is all."""
    whole = text.strip().removesuffix(".")
    answer = said(text, text.index(whole)) if _ALONE.fullmatch(whole) else None
    return answer and answer._replace(source="line")
