r"""Choices among the options of a question: `C) 12`, `C, air`, `B (8/11)`, `\text{Option (D)}` are their letter."""

import re

_OPENS = (
    r"^\s*\$?(?:\\(?:text|textbf|mathrm|mathbf) ?\{ ?)?(?:(?i:option|choice)[\s\\~]{1,3}(?=\(?[A-J]\)?[\s.$}]{0,9}$))?"
)
# A bracket behind a letter: words, or a number with a unit; `E (X)` and `C (5,2)` are formulas.
_NUMBER = r"[-−]?[$€£]?[0-9][0-9./]*%?(?: ?[A-Za-z/²³]{1,9})?"
_NOTE = rf"(?!(?i:incorrect|wrong|false|not|no)\b)(?:[A-Za-z][A-Za-z '-]{{2,}}|{_NUMBER})"
_BEHIND = (
    r"[.:](?:\}?\s|\s\}|\\[ ,;])(?!\s*[A-Z]\b)|\)\}?|\s[-–—]\s(?=[A-Za-z]{3})|\s*\\text\s*\{\s*[(（]"
    rf"|\s\((?={_NOTE}\)\s*$)|\s?（(?={_NOTE}[)）]\s*$)|\)?,\s(?=[A-Za-z]{{3}}|[^A-Z]{{6}})|(?<=\)),\s"
)
CHOICE = (
    rf"{_OPENS}(?P<label>(?:\((?=[A-J]\)))?(?P<letter>[A-J]))"
    rf"(?:(?:{_BEHIND})(?!\s*(?:and|or)\b)(?:(?![A-J][).])[^:])*$|\)?[\s.$}}]*$)"
)
"""A letter with what names or explains it, as all of a text."""

_CHOICE = re.compile(CHOICE, re.DOTALL)


def label_of_choice(text: str) -> tuple[int, int] | None:
    """Return the span of the letter that a text chooses, with its brackets; None if it is no choice."""
    found = _CHOICE.match(text)
    return found and (found.start("label"), found.end("letter") + text.startswith(")", found.end("letter")))
