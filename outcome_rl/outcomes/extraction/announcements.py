"""Words that announce an answer, as one table: for each language those for an answer and a result, links, and copulas.

An announcement is a subject, a link and a value: `The final answer | is | 18`, `答案 | 是 | 18`. The words are patterns
for a text in which markup is blank.
"""

import re
from importlib.resources import files
from typing import NamedTuple

from outcome_rl.outcomes.extraction.answer import words_of


class Language(NamedTuple):
    """Words of a language, separated by `|`; where scripts join words, a longer one stands before its beginning.

    Attributes:
        answer: subjects that announce an answer wherever they stand.
        final: what may stand behind such a subject.
        link: verbs between a subject and its value.
        result: subjects that announce an answer at the beginning of the last line only.
        so: words that open a conclusion.
        closing: copulas behind a value.
        head: what stands between a link and a value.
        changes: words behind a number by which it is another one.
        limits: such words before it, in other languages than English.
    """

    answer: str
    final: str
    link: str
    result: str
    so: str
    closing: str = ""
    head: str = ""
    changes: str = ""
    limits: str = ""


_LINES = files(__package__).joinpath("languages.txt").read_text("utf-8").splitlines()[2:]
LANGUAGES = [Language(*(cell.strip() for cell in line.split(";")[1:])) for line in _LINES]
_LATIN = r"A-Za-zÀ-ɏͰ-ӿ"  # of scripts whose words stand apart
_EDGE = rf"(?:(?<![{_LATIN}](?=[{_LATIN}]))|(?-i:(?<=[a-z])(?=[A-Z])))"


def _words(column: str) -> str:
    """Return the pattern of the words of a column in all languages."""
    cells = (getattr(row, column) for row in LANGUAGES)
    return rf"{_EDGE}(?:{'|'.join(filter(None, cells))}){_EDGE}"


_NOTE = r"(?:\s*\([^()\n]{1,40}\))?(?:,[^,.\n0-9]{1,40},)?"
_OF = r"(?:\s+(?:to|for|of|in|that|I|we)\s[^.:=\n\\$]{1,60}?)?(?<=\S)"
_GAP = r"(?:[}\]\"'`|>]|\\(?=[\"']))*+"  # braces of LaTeX, quotation marks of JSON, cells of a table
_LETTERS = "(?-i:(?=[A-J])A?B?C?D?E?F?G?H?I?J?)"  # `B`, or several in order, `ABD`
_CHOICE = rf"\(?{_LETTERS}(?![A-Za-z0-9_'’-])"
_VALUE = rf"(?:[-−+]?[$€£¥]?[0-9]|\$|\\\(|{_CHOICE})"
# The value of a heading is all of its line.
_BELOW = (
    rf"[ \t]*+\n\s*+(?=\$|\\[(\[]|(?:[^\sA-Za-z]{{0,40}}[0-9][^\sA-Za-z]{{0,40}}|{_CHOICE}[).]?)[ \t]*+(?:\n|\Z)"
    rf"|(?:[^\n:]|:(?=[0-9])){{1,150}}\Z)"
)
# Without a link the value is a number, a formula or a choice that ends its sentence.
_CLOSED = rf"\s*+(?={_VALUE}(?:[^.。।!！۔\n]|\.(?=[0-9])){{0,60}}+[.。।!！۔]?(?:\s|\Z))"
_SIGN = (
    rf"\s*+(?:[-=]{{1,2}}>|[:=—→⇒]|–(?=\s)|(?<=\|>)|(?<=\s)-(?=\s+(?:[-$(]?[0-9]|{_LETTERS}\b))|\|(?=[^|\n]{{1,60}}\|))"
)


class Announcement(NamedTuple):
    """Patterns of a language: an announcement up to its value, and its subject."""

    whole: re.Pattern[str]
    subject: re.Pattern[str]


# For each beginning of a subject, up to a character that may be missing or another: the patterns of its language.
ANNOUNCEMENTS: dict[str, Announcement] = {}
for _row in LANGUAGES:
    _subject = rf"{_EDGE}(?:{_row.answer}){_EDGE}(?:\s*+(?:{_row.final}))?"
    _link = rf"\s*+{_EDGE}(?:{_row.link}){_EDGE}\s*+[:,]?|{_SIGN}|{_BELOW}"
    _closed = f"|{_GAP}{_CLOSED}" if ANNOUNCEMENTS else ""  # but not in English, where "answer" is a verb too
    _whole = re.compile(rf"(?i){_subject}(?:{_OF}{_NOTE}{_GAP}(?:{_link}){_closed})\s*+")
    _row_of = Announcement(_whole, re.compile(f"(?i){_subject}"))
    ANNOUNCEMENTS |= {re.split(r".\?|[(\[\\]", word)[0]: _row_of for word in re.split(r"\|(?![^(]*\))", _row.answer)}
CHANGES, LIMITS = _words("changes"), _words("limits")
_SO = rf"{_words('so')}[\s,、:]*+"
_RESULT = rf"(?:{_SO})?(?:(?:the|el|la|le|das|die|der|o|il|het|il) )?{_words('result')}{_GAP}"
# `Result: 18`, `El resultado es 18`, `A: 18` at the beginning of the last line.
RESULT = re.compile(
    rf"(?i)(?:####(?=[^\n]{{0,300}}?[0-9\\$])|[\W_]*+A:|[\W_]*+{_RESULT}(?:\s*+[:=)—–]|\s-(?=\s)|(?:\s*+{_words('link')})?{_CLOSED}))\s*+(?=\S)"
)
# `Thus 18`, `따라서 18개입니다`: a conclusion and nothing but its value.
CONCLUDED = re.compile(rf"(?i)[\W_]*+(?:{_SO}|(?=option |choice ))(?:(?:option|choice) )?(?={_VALUE})")
_LETTER = r"\(?((?-i:[A-J]))\)?(?![A-Za-z0-9_'])"
# `I would pick B`, `It is B.`, `Only B works.`, `So option B is the correct one.`
CHOSEN = re.compile(
    rf"(?i)[\W_]*+(?:(?:(?!n't|\b(?:not|never|some)\b)[^.!?\n]){{0,60}}?\b(?:choose|select|pick|go(?:ing)? with"
    rf"|opt for)\s(?:(?:option|choice|letter|answer|the)\s)?"
    rf"{_LETTER}|(?:{_SO})?(?:it(?:'s| is| must be)\s{_LETTER}[.!]?\s*+\Z"
    rf"|(?:only\s)?(?:(?:option|choice|statement|answer)\s)?{_LETTER}"
    r"\s(?:it is|works|fits|(?:is|must be) (?:the )?(?:only |most |best )?(?:correct|right|true|valid"
    r"|best)[^.\n]{0,40})[.!]?\s*+\Z))"
)
CONCLUSION = re.compile(
    rf"(?i)[\W_]*+(?:{_SO}|{_RESULT}\s*+(?:[:=]|{_words('link')})|[^.!?\n]{{0,100}}\b(?:therefore|thus|hence)\b)"
)
CLOSING = re.compile(rf"(?<=[\w$)}}])\s{{0,9}}(?:{_words('closing')})\s{{0,9}}\Z")
REST = re.compile(rf"[\s$)]*+(?:{_words('closing')})?[\s.。।!！۔$)]*+\Z")
# `C is the correct answer`, `We get 18 as the answer`, `Option C is correct`: what stands before the subject.
BEFORE = re.compile(
    r"(?:(?:(?<![\w.])([A-J]|\([A-J]\)|[-−]?[$€£]?[0-9][0-9,./]*)|\$([^$\n]{1,99})\$)\)?"
    r"\s{1,9}(?:is|as|must be)(?: indeed)?"
    r"\s{1,9}(?:the|my)\s{1,9}(?:(?:final|correct|right|best)\s{1,9})?"
    r"|(?i:option|choice)\s{1,9}\(?(?P<choice>[A-J])\)?\s{1,9}(?:is|must be)\s{1,9}"
    rf"|(?<![A-Za-z])(?P<chosen>{_LETTERS})\s?(?:选?项\s?)?[都才]?[是为]?(?:唯一|最)?)\Z"
)
# Of `20 * 2 = 40` the right side is the answer, and of `$20 x 2 = $40`, whose signs delimit no formula.
_OPERAND = r"[-+*/×÷0-9,() ]|\.[0-9]|(?<=[0-9] )x(?= [$0-9])"
CALCULATION = (
    rf"(?=(?:[0-9,() ]|\.[0-9])+[-+*×÷x])(?:(?:{_OPERAND})++=)++\s*+"
    rf"|(?:(?:{_OPERAND}|[€£]|\$(?=[0-9]))++=\s*+)++(?=[$€£][0-9])"
)
# Of a value that is supposed, doubted, or said by others.
SUPPOSED = rf"(?i:{words_of('supposed')})"
# What a speaker says of a value before it: `I think it is`, `that gives`, `most likely`.
HEAD = re.compile(
    rf"(?i)(?:(?:[-=]>|⇒|[:=~≈,、{{]++|(?:{words_of('sure')})(?![A-Za-z])|{_words('head')}|\\text(?:bf)?\{{|\\approx)\s*+)*+(?:{CALCULATION})?"
    r"(?=[-−+$€£\\(\[{0-9.]|(?-i:[A-HJ]\b|[I](?=\W*(?:\n|\Z)))"
    r"|[\"']?(?!not\b)[^\W\d_]{1,40}(?: [^\W\d_]{1,40})?\s*+[.!]?\s*+[\"']?\s*+[.!]?\s*+(?:\n|\Z))"
)
# What is said after a value: a reason, another value that it is not, the same value in another form, a remark.
REMARK = re.compile(words_of("remark"))
