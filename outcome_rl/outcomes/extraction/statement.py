r"""A statement, and the value in it: `12 berries per trip`, `that Ken can buy 6 toys`, `(C), air`, `most likely Yes`.

A statement is a noun phrase or a clause. Its value is its formula, its quotation, its choice, its one head quantity, or
its words. A quantity is no head if a preposition or a joint ties it to another: `62 numbers between 1 and 1000`,
`90 hours in 4 weeks`. Words that change a number (`million`, `or more`, `no more than`) keep the statement whole.
"""

import re
from collections import deque
from itertools import pairwise
from string import whitespace

from outcome_rl.outcomes.canonical.choices import label_of_choice
from outcome_rl.outcomes.canonical.units import readings_of, sum_of_units
from outcome_rl.outcomes.extraction import announcements as words
from outcome_rl.outcomes.extraction.answer import FORMULA, answer_at, sentence_ends, stripped, words_of
from outcome_rl.outcomes.keys import Tag, canonical_text
from outcome_rl.outcomes.outcome import Outcome

_WORD_VERB = re.compile(
    r"\b(?:is|are|equals?|es|son|est|sont|é|são|ist|sind|(?:was|were|be)(?= [$€£\\(-]{0,2}[0-9]))\b"
)
_VERB_OR_SIGN = rf"{_WORD_VERB.pattern}|[=是为多少]|等于"
_TERM = (
    r"(?:[0-9](?:[0-9,]*[0-9])?(?:\.[0-9]+|:[0-9]+(?: ?[AaPp]\.?[Mm]\b)?)?(?: [0-9]+/[0-9]+|/[0-9]+)?"
    r"|(?<= )[inkx√π](?![A-Za-z]))(?:[inkxyπ√][0-9]*(?![A-Za-z]))?(?:\^\{?[-−]?[0-9A-Za-z]+\}?|[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)?"
)
_TUPLE = r"[(\[][-−]?[0-9][0-9./]*(?:, ?[-−]?[0-9][0-9./]*)+[)\]]"
_QUANTITY = (
    r"\$\$?[^$\n]{1,300}\$\$?(?![0-9])|\\\([^\n]{0,300}?\\\)|\\\[[^\n]{0,300}?\\\]"
    r"|-?\\[dt]?frac\{[^{}\n]{1,20}\}\{[^{}\n]{1,20}\}"
    rf"|{_TUPLE}"
    r"|(?<![A-Za-z0-9_.^√∛<>≤≥≠¬±])(?<![-+−×·*/^<>≤≥≠±] )(?<![0-9a-zπ)][-+−×·*/])"  # no part of a formula
    rf"(?>[-−]?[$€£]?(?=[0-9]){_TERM}(?:\s?(?:[-+−×·*^/])\s?{_TERM})*(?:\s?\\?%)?)"
    r"(?!\s?[√π]|[(]|K\b|\\[a-z]|\s?(?:[-+−×·*<>≤≥]|/(?![a-z]{3}))\s?[A-Za-z(√π\\$])"
)
_CLOSING = whitespace + ".!。"
_QUANTITY_OR_VERB = re.compile(rf"{_QUANTITY}|({_VERB_OR_SIGN})")

_MAX_STATEMENT = 300
# What may be a formula that no sign delimits: it has a function, a constant, a power or an order, no words in a row.
_UNSIGNED = re.compile(
    r"(?=.{0,60}?(?:[√π²³^<>≤≥\\=]|[a-z][0-9]{0,2}(?:_\w)?\(|\bpi\b))(?!.{0,60}?[a-z]{2} [a-z]{2})[^\n$]{2,60}"
)
# Words before a number by which it is not the answer: they deny, limit or change it, or give another number.
_UNSETTLED = re.compile(f"(?i){words_of('unsettled')}")
# Right before a value that is denied: `cannot be`, `isn't`.
DENIED = re.compile(r"(?i)(?:n't|not)(?: also)?(?: be)?[\s:,]*+\Z")
_PLANS = re.compile(f"(?i){words_of('plan')}")
_VERB = re.compile(_VERB_OR_SIGN + r"|\b(?:has|have|had|was|were|will|would|can|could|should|must)\b")
# `After 2 hours, ...`: what stands before the clause.
_BEFORE = re.compile(
    r"(?i)\s*+(?:that )?(?:when|if|after|before|since|because|once|in|at|on|with|for|by|during|over|from|out of) "
    r"(?:[^,.\n]|[,.](?=[0-9])){1,100},\s(?=[^\n]{0,200}[0-9])"
)
# Right behind a number: what changes it, compares it, denies it, or goes on with it.
_CHANGED = re.compile(
    rf"(?i)[\s-]{{0,3}}(?:!(?=\S)|\^|\((?:wrong|incorrect|false|not (?:correct|right))\b|{words.CHANGES}(?!-))"
)
# Words by which the number behind them is a part of something, or of a name: `multiples of 6`, `Player 1`.
_PART_OF = re.compile(
    rf"(?:{words_of('part')}|(?:\A|\{{|\b(?:is|are|was|the|an?|in|on|of|to|at|for|and|or))\s*[A-Z]\w{{0,20}})"
    r" [ }]{0,2}\Z"
)
_MEASURE = re.compile(words_of("measure"))
# What ties a number to another: `90 hours in 4 weeks`, and at the beginning `Out of 20 students 12 passed`.
_TIED = re.compile(rf"(?i)\b{words_of('preposition')}(?: the| a| all| its| his| her| their)?\s{{0,3}}\Z")
_WORDS = re.compile(r"(?<![A-Za-z\\])[^\W\d_]{2,}|[\u0590-\u1fff\u3040-\ud7ff]")
_WORDS_BEHIND = re.compile(
    r"(?:\s?(?!(?:in|as|has|us)\b \w)[^\s,;:()（）]{1,20}(?: (?!in\b)[^\s,;:()（）]{1,20}){0,3})?"
)

# Formulas that are one answer, up to the end of the sentence: `$x = 1$ and $y = 2$.`
_FORMULAS = re.compile(
    r"\$([^$\n]{1,100}(?:\$(?:\s{0,9}[,;]\s{0,9}|\s{0,9},?\s{0,9}(?:and"
    r"|or)\s{1,9})\$[^$\n]{1,100}){1,9})\$\s*+(?:[.!。]|,?\s*+respectively|\Z|\n)"
)
_INSIDE = r"((?:[^\\\n@]|\\[^\n@]){1,100}?)\s{0,9}"
_QUOTED = re.compile(
    "|".join(
        rf"{opening}{_INSIDE.replace('@', closing[-1])}{closing}"
        for opening, closing in ((r'\\?"(?:\\")?', r'(?:\\")?\\?"'), ("'", "'"))
    )
)
_VERDICT = re.compile(r"(?i)\[?(yes|no|true|false)\]?(?=[,;]\s|\s+[-–—]\s)")  # and an explanation
_BRACKETS = re.compile(r"([][(){}<>](?: ?[][(){}<>]){1,60})(?=[.\s]*+(?:\n|\Z))")  # of a task that closes them
_FORMS = (_BRACKETS, _FORMULAS, FORMULA, _QUOTED, _VERDICT)
# A value behind a key of JSON: a string, also one in a list or an object of one, a number, or a list.
_KEY = re.compile(r"[\"']\s{0,9}:\s{0,9}\Z")
_FIELD = re.compile(
    r"(?:\[\s{0,9}(?=[\\\"']{1,4}[^\"'\n]{1,999}[\"']\s{0,9}\])|\{\s{0,9}\\?[\"'][^\"'\n]{1,30}\\?[\"']\s{0,9}:\s{0,9})?"
    r"(?:(\\{0,3}[\"'])(?:\\{0,3}[\"']| ){0,9}+(.{0,999}?)\1|(\[[^\]\n]{0,999}\]|[^\s,{}\"'\\\[][^,{}\n]{0,99}?))"
    r"(?=\s{0,99}(?:[\]},;]|\n|\Z))"
)
_ENDS_STRING = re.compile(r"\\{0,3}[\"']\s{0,99}(?:[,}\]]|\Z)")
# A mark of a list, or of a step, before a statement.
BULLET = re.compile(words_of("bullet"))
_BRACKET = re.compile(r"(\\left\s?)?(\\right\s?)?\\?[()\[\]{}]")


def said(text: str, start: int) -> Outcome | None:
    """Return what is said from `start` on: a formula, a quotation, a choice, a quantity, or words up to a remark."""
    if _KEY.search(text, max(0, start - 20), start) and (field := _FIELD.match(text, start)):
        at, end = field.span(field.lastindex or 0)
        if field[1]:
            return said(text[:end], at) if at < end else None
        return answer_at(text, at, end, "phrase")
    if bullet := BULLET.match(text, start):
        start = bullet.end()
    if lead := words.HEAD.match(text, start):
        start = lead.end()
    if found := next(filter(None, (form.match(text, start) for form in _FORMS)), None):
        at, end = found.span(found.lastindex or 0)
        is_sentence = found.re is _QUOTED and text[end - 1] == "." and " " in text[at:end]
        return said(text[:end], at) if is_sentence else answer_at(text, at, end, "phrase")
    if text.startswith(("```", '""'), start):  # of a program: the view has no other fence
        return None
    stop = next(sentence_ends(text, start, len(text)), None)
    end = len(text) if stop is None else stop.start()
    ends = (words.REMARK,) if text.startswith(("[", "{", "(", '"', "'"), start) else (words.REMARK, _ENDS_STRING)
    end = min((found.start() for mark in ends if (found := mark.search(text, start, end))), default=end)
    if label := label_of_choice(text[start : min(end, start + _MAX_STATEMENT)]):
        return answer_at(text, start + label[0], start + label[1], "phrase")
    if _WORDS.search(text, start, end) and (quantity := quantity_of(text, start, end)):
        return answer_at(text, quantity[0], quantity[2], "phrase")
    if closing := words.CLOSING.search(text, max(start, end - 20), end):
        end = closing.start()
    return answer_at(text, start, _balanced(text, start, end), "phrase")


def _is_formula(statement: str) -> bool:
    """Whether all of a statement is mathematics, though no sign delimits it: `sqrt(5)/2`, `2 pi`, `x > 5 or x < -5`."""
    if not _UNSIGNED.fullmatch(statement):
        return False
    return canonical_text(statement)[:2] not in ("", Tag.WORDS, Tag.UNREAD, Tag.UNIQUE)


def _balanced(text: str, start: int, end: int) -> int:
    """Return where a bracket closes that was opened before `start`: that of `(Answer: 18)`; else `end`."""
    depth = int(text.startswith(("(", "[", "{"), start))
    for bracket in _BRACKET.finditer(text, start + 1, min(end, start + 200)):
        depth += 1 if bracket[1] or (not bracket[2] and bracket[0][-1] in "([{") else -1
        if depth < 0:
            return end if text[start].isalpha() and text.startswith(") ", start + 1) else bracket.start()  # `A) 5`
    return end


def quantity_of(text: str, start: int, end: int) -> tuple[int, int, int] | None:
    """Return where the one head quantity of a statement begins and ends, without and with a known unit.

    None if it has several, or if words change it.
    """
    end = min(end, start + _MAX_STATEMENT)
    if adjunct := _BEFORE.match(text, start, end):
        start = adjunct.end()
    if (span := head(text, start, end)) is None:
        return None
    is_money = text[span[0]] in "$€£" and text[span[1] - 1] != "$"
    before = text[start : span[0]]
    verb = deque(_VERB.finditer(before), maxlen=1)
    near = before[verb[0].end() :] if verb else before
    is_part = not is_money and _PART_OF.search(before) and not _MEASURE.search(before)
    if _PLANS.search(before) or _UNSETTLED.search(near) or is_part:
        return None
    stop = span[1] if is_money else _end_of_unit(text, span[1], end)
    after = text[stop:end][:1]
    is_word = after >= "\u0400" and after.isalpha()  # in a script without spaces, or a counter
    if changed_behind(text, stop, end) or not (after in " ,;.!)(（：:—–/" or is_word):
        return None
    return *span, stop


def _end_of_unit(text: str, at: int, end: int) -> int:
    """Return where the known unit behind a number ends, such as `miles per hour`; `at` without one."""
    found = _WORDS_BEHIND.match(text, at, end)
    words = found[0].rstrip(".") if found else ""
    while words.strip() and not words.startswith((" per ", "/")):
        stop = at + len(words)
        if readings_of(words) and (len(words.strip()) > 1 or not text[stop:end].strip(" .")):
            return stop
        words = words.rpartition(" ")[0]
    return at


def changed_behind(text: str, start: int, end: int) -> bool:
    """Whether words behind a number change or deny it: `million`, `squared`, `apples or more`, `is not prime`."""
    return _CHANGED.match(text, start, end) is not None


def head(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the one quantity behind the last verb of a statement, or in all of it, that nothing ties to another.

    A formula that no sign delimits is one whole: `sqrt(5)/2`, `2 pi`, `x > 5 or x < -5`.
    """
    said_of = deque(_WORD_VERB.finditer(text, start, end), maxlen=1)
    whole = stripped(text, said_of[0].end() if said_of else start, end, None, _CLOSING)
    if _is_formula(text[slice(*whole)]):
        return whole
    quantities, behind, verb = list[tuple[int, int]](), -1, start
    for found in _QUANTITY_OR_VERB.finditer(text, start, end):
        if found[1]:
            behind, verb = len(quantities), found.end()
        else:
            quantities.append(found.span())
    if 0 <= behind < len(quantities):
        start, quantities = verb, quantities[behind:]
    if len(quantities) > 1:
        whole = quantities[0][0], _end_of_unit(text, quantities[-1][1], end)
        if sum_of_units(text[slice(*whole)]):
            return whole
        quantities = _heads(text, start, quantities)
    return quantities[0] if len(quantities) == 1 else None


def _heads(text: str, start: int, quantities: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the quantities that nothing ties to another one."""
    between = text[quantities[0][1] : quantities[1][0]]
    if (_SUBJECT.match(between) and not _TIED.search(between)) or _ADJUNCT.search(text[start : quantities[0][0]]):
        quantities = quantities[1:]
    heads, is_tied = quantities[:1], False
    for (_, before), (at, stop) in pairwise(quantities):
        between = text[before:at]
        if not _JOINED.search(between):
            is_tied = _TIED.search(between) is not None or (len(heads) > 0 and len(between.split()) > 1)
        if not is_tied:
            heads.append((at, stop))
    return heads or quantities[:1]


# Behind a number that a clause is about, `8 pens will cost $12`, `1週間で540メートル`; before one of its circumstances.
_SUBJECT = re.compile(words_of("subject"))
_ADJUNCT = re.compile(rf"(?i)\b(?:{words_of('adjunct')})\s\Z")
_JOINED = re.compile(r"(?:\A\s{0,9}|,\s{0,9}|\b(?:and|or|plus|to)\s{1,9})\Z")
