r"""Choices among the options of a question: `C) 12`, `C, air`, `B (8/11)`, `\text{Option (D)}` are their letter."""

import re

_OPENS = (
    r"^\s*\$?(?:\\(?:text|textbf|mathrm|mathbf) ?\{ ?)?(?:(?i:option|choice)[\s\\~]{1,3}(?=\(?[A-J]\)?[\s.$}]{0,9}$))?"
)
# A bracket behind a letter explains it; `A (incorrect)` is no choice, and `E (X)` and `C (5,2)` are formulas.
_NOTE = r"(?!(?i:incorrect|wrong|false|not)\b|[A-Za-z][)）]|[0-9]+\s?,)[^()（）]{1,60}"
_BEHIND = (
    r"[.:](?:\}?\s|\s\}|\\[ ,;])(?!\s*[A-Z]\b)|\.(?!g\b)(?=[0-9a-z($\\]{2})|[)\]]\}?|\s(?:-(?=\s[A-Za-z]{3})|[–—])\s"
    rf"|\s*\\text\s*\{{\s*[(（]|\s\((?={_NOTE}\)\s*$)|\s?（(?={_NOTE}[)）]\s*$)"
    r"|\)?,\s(?=[A-Za-z\"“'‘√$\\]{2}|[^\sA-Z]{1,9} ?[a-z°%]{1,9}$|[^A-Z]{6})|(?<=\)),\s"
)
CHOICE = (
    rf"{_OPENS}(?:\[(?=[A-J]\]))?(?P<label>(?:\((?=[A-J]\)))?(?P<letter>[A-J]))"
    rf"(?:(?:{_BEHIND})(?!\s*(?:and|or|(?:is|are) (?:not|wrong|incorrect|false))\b)"
    rf"(?:(?!\b[A-J][).:](?!M\b))[\s\S])*$|[)\]]?[\s.$}}]*$)"
)
"""A letter with what names or explains it, as all of a text."""

_CHOICE = re.compile(CHOICE, re.DOTALL)


def label_of_choice(text: str) -> tuple[int, int] | None:
    """Return the span of the letter that a text chooses, with its brackets; None if it is no choice."""
    found = _CHOICE.match(text)
    return found and (found.start("label"), found.end("letter") + text.startswith(")", found.end("letter")))
