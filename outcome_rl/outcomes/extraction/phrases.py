"""Answers that a phrase announces: "the answer is ...", in several languages."""

import heapq
import re
from collections.abc import Iterator
from itertools import islice

from outcome_rl.outcomes.extraction.answer import DIGIT, SENTENCE_END, Answer, answer_at, formula_at

_IS = (
    r"(?:\s+(?:to|for|of)\s[^.:=\n0-9\\$]{1,60}?)?"
    r"(?<=\S)\s++(?:is|are|equals|becomes|comes out (?:to|at)(?: be)?|(?:should|would|must|will) be)\b"
    r"(?:,?\s+(?:also|clearly|exactly|given by|hence|indeed|just|now|simply|then|therefore|thus)\b,?)?\s*:?"
)
# `"final_answer": 7`, `the correct option is (B)`; `at pos` of a match sees what is before it.
_ANSWER = r"(?:(?<![A-Za-z])answers?|(?<=correct )(?:option|choice))"
_PHRASE = re.compile(rf"{_ANSWER}(?:{_IS}|[\"'`]?\s*[:=])[\s*_]*", re.IGNORECASE)
_FOREIGN_PHRASE = re.compile(
    rf"(?:{_ANSWER}(?:{_IS}|[\"'`]?\s*[:=])|答案(?:[是为]\s*[:：]?|[:：])"
    r"|故选\s*[:：]?|(?:정?답|答え)(?:은|は|[:：])"
    r"|(?:คำตอบ|đáp án|उत्तर|الجواب|الإجابة)\s*(?:(?:คือ|là|है|هو|هي)\s*[:：]?|[:：])"
    r"|\b(?:respuesta|réponse|resposta|risposta|antwort|ответ|odpowied[źz]|cevap|jawaban(?:nya)?|jibu)(?: finale?)?\s*"
    r"(?:(?:es|est|é|è|ist|lautet|to|adalah|ni)\b\s*:?|[:：]))[\s*_]*",
    re.IGNORECASE,
)
_FOREIGN_WORDS = """
respuesta réponse resposta risposta antwort ответ odpowied cevap jawaban jibu 答案 故选 답 答え คำตอบ đáp उत्तर
الجواب الإجابة
"""
_FOREIGN = _FOREIGN_WORDS.split()
# A quotation, code, or the number of a JSON object.
_QUOTED = re.compile(
    r"(?:```(?:json|text|plaintext|latex|tex|math)?\s+|[\"'`])([^\"'`\n]{1,100}?)\s*[\"'`]|(-?[0-9][0-9.]*)(?=\s*\})"
)
_PROGRAM = re.compile(r"```[A-Za-z+#]+[ \t]*\n")
_COPULA = re.compile(r"(?<=[0-9$)}])(?:입니다|이다|です|である)\b")
# A choice with its text: words without a digit; `A. 12` is read whole.
_LABEL = re.compile(
    r"(\(?[A-J]\)|[A-J](?=[.:]))(?:[.:)]|(?<=\)))[ \t]+(?=[A-Za-z'(])(?![^\n]*\b[A-J]\b[).:]?)[^0-9\n$\\]*(?:\n|\Z)"
)
# What stands before the word is stripped, so that a run of spaces is read once.
_REASON = re.compile(r"(?<=\s)(?:because|since|which|where|as)\s")


def phrase(response: str) -> Answer | None:
    """Find the text after the last "answer is" or "answer:", up to the end of its formula, clause or line.

    A later one that says nothing new, `the answer is correct` or cut off, is ignored, and `the answer is not 7` cancels
    those before it.
    """
    for match in islice(_phrases(response), _MAX_PHRASES):
        if _TAKEN_BACK.match(response, match.end()):
            break
        answer = _said(response, match.end())
        if answer is not None and not _is_prose(answer.text):
            return answer
        if answer is not None and _DENIAL.search(answer.text):
            break
    return None


def _phrases(response: str) -> Iterator[re.Match[str]]:
    """Yield every "answer is", from the last one up."""
    lowered = response.lower()
    if any(word in lowered for word in _FOREIGN):
        return reversed([*_FOREIGN_PHRASE.finditer(response)])
    # A search for a word is much faster than one that ignores case.
    found = (_phrases_of_word(response, word) for word in ("nswer", "NSWER", "ption", "PTION", "hoice", "HOICE"))
    return heapq.merge(*found, key=lambda match: match.start(), reverse=True)


def _phrases_of_word(response: str, ending: str) -> Iterator[re.Match[str]]:
    at = response.rfind(ending)
    while at > 0:
        if match := _PHRASE.match(response, at - 1):
            yield match
        at = response.rfind(ending, 0, at)


def _said(response: str, start: int) -> Answer | None:
    """Return what is said from `start` on: a formula, a quotation, or words up to the end of the clause."""
    if formula := formula_at(response, start, len(response)):
        return answer_at(response, formula[0], _end_of_list(response, formula[1]), "phrase")
    if quoted := _QUOTED.match(response, start):
        return answer_at(response, *quoted.span(quoted.lastindex or 0), "phrase")
    if _PROGRAM.match(response, start):
        return None
    if label := _LABEL.match(response, start):
        return answer_at(response, *label.span(1), "phrase")
    stop = SENTENCE_END.search(response, start)
    end = len(response) if stop is None else stop.start()
    if copula := _COPULA.search(response, start, end):
        end = copula.start()
    if reason := _REASON.search(response, start, end):  # `42 because ...`
        end = reason.start()
    return answer_at(response, start, end, "phrase")


# A second formula of `$x = 1$ and $y = 2$.`, and the end of the list.
_NEXT_FORMULA = re.compile(
    r"(?:\$|\\\))\s*(?:[,;]\s*(?:(?:and|or)\s)?|(?:and|or)\s)\s*(?:\$([^$\n]{1,100})(?=\$)|\\\(([^\n]{1,100}?)(?=\\\)))"
)
_LIST_END = re.compile(r"(?:\$|\\\))?[\s*]*(?:[.!。！:]|,?\s*respectively|\Z|\n)")


def _end_of_list(response: str, end: int) -> int:
    """Return the end of the last formula of a list whose first one ends at `end`, and which ends the sentence."""
    last = end
    while following := _NEXT_FORMULA.match(response, last):
        last = following.end()
    return last if _LIST_END.match(response, last) else end


_MAX_PHRASES = 4  # each costs a search for its end
_CHECKED = frozenset(("correct", "right", "verified", "confirmed", "valid", "reasonable"))
# `not 7`, `not correct`; words that an answer may be, `not possible`, stay one.
_TAKEN_BACK = re.compile(rf"not\s+(?:(?:equal to\s+)?[-+(]?[0-9$\\]|(?:{'|'.join(sorted(_CHECKED))})\b)", re.IGNORECASE)
_DENIAL = re.compile(r"\b(?:not|wrong|incorrect|cannot|unknown|unclear)\b|n't\b", re.IGNORECASE)


def _is_prose(text: str) -> bool:
    """Return whether the phrase continues in words ("the answer is consistent with the problem statement")."""
    has_digit = DIGIT.search(text) is not None
    return len(text) > 100 or text.casefold() in _CHECKED or (len(text.split()) > 3 and not has_digit)
