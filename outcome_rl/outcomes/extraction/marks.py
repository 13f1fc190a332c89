"""Answers that a mark announces: a tag, `####`, a heading, `A:` at the last line; or that are the whole response."""

import re

from outcome_rl.outcomes.extraction.answer import QUALIFYING, Answer, answer_at, bare, last_match

_TAG_END = re.compile(r"</((?:final_?)?answer|final)>|\[/((?:FINAL_?)?ANSWER)\]", re.IGNORECASE)


def tag(text: str) -> Answer | None:
    """Find the last complete `<answer>...</answer>` or `[ANSWER]...[/ANSWER]`."""
    close = last_match(_TAG_END, text) if "</" in text or "[/" in text else None
    if close is None:
        return None
    opening = f"<{close[1]}>" if close[1] else f"[{close[2]}]"
    start = text.rfind(opening, 0, close.start())
    return None if start < 0 else answer_at(text, start + len(opening), close.start(), "tag")


# GSM8K's mark, anywhere; `#### Step 1` is a Markdown heading. What follows begins with a number, or names it: `x = 18`.
_HASH = re.compile(
    r"####[ \t]*+(?:[^=\n#A-Za-z]{1,60}=[ \t]*)?"
    r"((?:[^\s#]*[0-9][^\s#]*|[^=\n#]{1,60}=[ \t]*[-−]?[0-9][0-9.,/]*)(?: [0-9]+/[0-9]+)?)"
    r"((?:[ \t]+\(?[a-z]+\)?){1,4})?[ \t`]*(?:$|(?=####))|^# ([-−]?[0-9][0-9.,]*)\Z",
    re.MULTILINE,
)


def hash_mark(text: str) -> Answer | None:
    """Find the last mark of the form `#### 42` (GSM8K), or a last line `# 42`."""
    last = last_match(_HASH, text) if "# " in text or "####" in text else None
    if last is None:
        return None
    start, end = last.span(3 if last[3] else 1)
    return answer_at(text, start, last.end(2) if last[2] and QUALIFYING.search(last[2]) else end, "hash")


_NUMBER_ONLY = re.compile(
    r"[-−]?(?:[$€£]?[0-9][0-9,]*(?:\.[0-9]+)?(?:/[0-9]+)?%?|\\[dt]?frac\{[0-9]+\}\{[0-9]+\})|\(?[A-J]\)?"
    r"|\$[^$\n]+\$|\\\([^\n]+\\\)"
)


_LINE_ONLY = re.compile(
    r"[*]{0,2}(?:\([A-J]\)|[A-J][.:)])[ \t]++(?![^\n]*(?:\b[A-J]\b|\b(?:is|are|was|were|we|let|said)\b))[^\n]{1,60}"
    r"|[A-Za-z](?:_[0-9A-Za-z])?[ \t]*=[ \t]*[-−]?[0-9]+(?:\.[0-9]+)?(?:/[0-9]+)?"
)


def choice_with_text(text: str) -> Answer | None:
    """Read a choice with its text that is the whole text: `B. 9.8 m/s`."""
    whole = text.strip(" \n*.")
    is_choice = whole[:2].strip("(")[:1].isupper() and _LINE_ONLY.fullmatch(whole)
    return answer_at(text, 0, len(text), "line") if is_choice and "=" not in whole[:4] else None


def only_number(text: str) -> Answer | None:
    """Read a number, a formula between its signs, `x = 2` or a choice that is the whole text."""
    whole = text.strip(" \n*.")
    if _NUMBER_ONLY.fullmatch(whole):
        return bare(text, 0)
    if _LINE_ONLY.fullmatch(whole):
        return answer_at(text, 0, len(text), "line")
    return None
