"""Answers that a phrase announces: "the answer is ...", in several languages, on the view of a text."""

import heapq
import re
from collections.abc import Iterator
from itertools import islice

from outcome_rl.outcomes.extraction import announcements as words
from outcome_rl.outcomes.extraction.answer import DIGIT, SENTENCE_END, Answer, answer_at, bare, formula_at

# A quotation, or the number of a JSON object.
_QUOTED = re.compile(r"[\"']([^\"'\n]{1,100}?)\s*[\"']|(-?[0-9][0-9.]*)(?=\s*\})")
_NUMBER = re.compile(r"[-−]?[0-9][0-9.,/]*+(?=\n|\Z)")
# A choice with its text: words without a digit; `A. 12` is read whole.
_LABEL = re.compile(
    r"(\(?[A-J]\)|\[[A-J]\]|[A-J](?=[.:]|\s+[-–—]\s))(?:[.:)\]]|(?<=[)\]])|(?=\s+[-–—]))[ \t]+(?=[A-Za-z'(–—-])"
    r"(?![^\n]*\b[A-J]\b[).:]?)[^0-9\n$\\]*(?:\n|\Z)"
)
# Formulas that are one answer, up to the end of the sentence: `$x = 1$ and $y = 2$.`
_FORMULAS = re.compile(
    r"\$([^$\n]{1,100}(?:\$(?:\s*[,;]\s*|\s*,?\s*(?:and|or)\s+)\$[^$\n]{1,100})+)\$\s*(?:[.!。]|,?\s*respectively|\Z|\n)"
)
_MAX_PHRASES = 4  # each costs a search for its end
_ENDINGS = ("nswer", "NSWER", "ption", "PTION", "hoice", "HOICE")
_CHECKED = frozenset(("correct", "right", "verified", "confirmed", "valid", "reasonable", "not"))
# `not 7`, `not correct`; words that an answer may be, `not possible`, stay one.
_TAKEN_BACK = re.compile(rf"not\s+(?:(?:equal to\s+)?[-+(]?[0-9$\\]|(?:{'|'.join(sorted(_CHECKED))})\b)", re.IGNORECASE)
_DENIAL = re.compile(r"\b(?:not|wrong|incorrect|cannot|unknown|unclear)\b|n't\b", re.IGNORECASE)


def phrase(text: str) -> Answer | None:
    """Find the value of the last announcement, up to the end of its formula, clause or line.

    A later one that says nothing new, `the answer is correct` or cut off, is ignored, and `the answer is not 7` cancels
    those before it.
    """
    for start, end in islice(_announced(text), _MAX_PHRASES):
        if end is not None:  # `C is the answer`
            return answer_at(text, start, end, "phrase")
        if _TAKEN_BACK.match(text, start):
            break
        answer = said(text, start)
        if answer is not None and not _is_prose(answer.text):
            return answer
        if answer is not None and _DENIAL.search(answer.text):
            break
    return None


def result(text: str) -> Answer | None:
    """Read a last line that names a result, `A: 42`, `Total: 42`, or that is a conclusion of one value, `Thus 42`."""
    start = text.rfind("\n") + 1
    if named := words.RESULT.match(text, start):
        answer = said(text, named.end())
        return answer and answer._replace(source="line") if answer and not _is_prose(answer.text) else None
    if so := words.CONCLUDED.match(text, start):
        answer = said(text, so.end())
        whole = answer and words.REST.match(text, answer.end) and " + " not in answer.text
        if answer and whole and (only := bare(answer.text, answer.start)):
            return only._replace(source="conclusion")
    return None


def _announced(text: str) -> Iterator[tuple[int, int | None]]:
    """Yield where the value of every announcement begins, from the last one up, and its end if it stands before."""
    found = [_of_ending(text, ending) for ending in _ENDINGS if ending in text]
    lowered = text.lower()
    is_foreign = not text.isascii() and words.FOREIGN_LETTER.search(text)
    for word in words.FOREIGN_WORDS if is_foreign else words.ASCII_WORDS:
        if word in lowered:
            found.append(_of_word(text, word))
    return found[0] if len(found) == 1 else heapq.merge(*found, reverse=True, key=lambda span: span[0])


def _of_ending(text: str, ending: str) -> Iterator[tuple[int, int | None]]:
    at = text.rfind(ending)
    while at > 0:
        if match := words.ENGLISH.match(text, at - 1):
            yield match.end(), None
        elif ending in ("ption", "hoice") and (choice := words.CORRECT.match(text, at - 1)):
            yield choice.span(1)
        elif ending == "nswer" and (before := words.BEFORE.search(text, max(0, at - 99), at - 1)):
            yield before.span(1)
        at = text.rfind(ending, 0, at)


def _of_word(text: str, word: str) -> Iterator[tuple[int, int | None]]:
    for at in reversed([match.start() for match in re.finditer(re.escape(word), text, re.IGNORECASE)]):
        if match := words.FOREIGN.match(text, at):
            yield match.end(), None


def said(text: str, start: int) -> Answer | None:
    """Return what is said from `start` on: a formula, a quotation, or words up to a remark or the end of the clause."""
    if number := _NUMBER.match(text, start):
        return answer_at(text, *number.span(), "phrase")
    if head := words.HEAD.match(text, start):
        start = head.end()
    if listed := _FORMULAS.match(text, start):
        return answer_at(text, *listed.span(1), "phrase")
    if formula := formula_at(text, start, len(text)):
        return answer_at(text, *formula, "phrase")
    if quoted := _QUOTED.match(text, start):
        return answer_at(text, *quoted.span(quoted.lastindex or 0), "phrase")
    if text.startswith("```", start):  # of a program: the view has no other fence
        return None
    if label := _LABEL.match(text, start):
        return answer_at(text, *label.span(1), "phrase")
    stop = SENTENCE_END.search(text, start)
    end = len(text) if stop is None else stop.start()
    if remark := words.REMARK.search(text, start, end):
        end = remark.start()
    if closing := words.CLOSING.search(text, max(start, end - 20), end):
        end = closing.start()
    if number := words.IN_SENTENCE.fullmatch(text, start, end):
        return answer_at(text, *number.span(1), "phrase")
    return answer_at(text, start, _balanced(text, start, end), "phrase")


_BRACKET = re.compile(r"\\?[()\[\]{}]")


def _balanced(text: str, start: int, end: int) -> int:
    """Return where a bracket closes that was opened before `start`: that of `(Answer: 18)`; else `end`."""
    depth = int(text.startswith(("(", "[", "{"), start))
    for bracket in _BRACKET.finditer(text, start + 1, min(end, start + 200)):
        depth += 1 if bracket[0][-1] in "([{" else -1
        if depth < 0:
            return end if text.startswith(") ", start + 1) else bracket.start()  # `A) 5`
    return end


_A_WORD = re.compile(r"(?<!\S)\S*[^\W\d_]{2}\S*")


def _is_prose(text: str) -> bool:
    """Return whether the phrase continues in words ("the answer is consistent with the problem statement")."""
    in_words = DIGIT.search(text) is None and len(_A_WORD.findall(text)) > 3
    return len(text) > 100 or text.casefold() in _CHECKED or in_words
