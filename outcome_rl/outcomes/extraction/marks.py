"""Answers that a mark announces: a tag, `####`, a heading, `A:` at the last line; or that are the whole response."""

import re

from outcome_rl.outcomes.extraction.answer import Answer, answer_at, bare, last_match

_TAG_END = re.compile(r"</((?:final_?)?answer)>|\[/((?:FINAL_?)?ANSWER)\]", re.IGNORECASE)


def tag(response: str) -> Answer | None:
    """Find the last complete `<answer>...</answer>` or `[ANSWER]...[/ANSWER]`."""
    close = last_match(_TAG_END, response) if "</" in response or "[/" in response else None
    if close is None:
        return None
    opening = f"<{close[1]}>" if close[1] else f"[{close[2]}]"
    start = response.rfind(opening, 0, close.start())
    return None if start < 0 else answer_at(response, start + len(opening), close.start(), "tag")


# One token that holds a digit, and the noun of a number: `#### Step 1` is a Markdown heading, not a GSM8K answer.
_HASH = re.compile(r"^####[ \t]*(?=\S*[0-9])(\S+|[-$€£]?[0-9][0-9.,/]*(?: [a-z]+){1,2})[ \t]*$", re.MULTILINE)


def hash_line(response: str) -> Answer | None:
    """Find the last line of the form `#### 42` (GSM8K)."""
    last = last_match(_HASH, response) if "####" in response else None
    return None if last is None else answer_at(response, *last.span(1), "hash")


_HEADING = re.compile(r"^[ \t#*_]*(?:the[ \t]+)?(?:final[ \t]+)?answer[ \t*_:]*$", re.IGNORECASE | re.MULTILINE)


def heading(response: str) -> Answer | None:
    """Read what follows a last heading "Final Answer", if it is the answer only."""
    last = last_match(_HEADING, response) if "nswer" in response or "NSWER" in response else None
    answer = last and bare(response[last.end() :], last.end())
    return answer and answer._replace(source="phrase")


_LINE = re.compile(r"[ \t*]*(?:(?:A|(?:[Ff]inal )?[Rr]esult):|Ans[.:])[ \t*]*(\S[^\n]*)")


def last_line(response: str) -> Answer | None:
    """Read a last line `A: 42`, the form of few-shot prompts that alternate `Q:` and `A:`, or `Result: 42`."""
    last = _LINE.match(response, response.rfind("\n") + 1)
    return None if last is None else answer_at(response, *last.span(1), "line")


_NUMBER_ONLY = re.compile(
    r"[-−]?(?:[$€£]?[0-9][0-9,]*(?:\.[0-9]+)?(?:/[0-9]+)?%?|\\[dt]?frac\{[0-9]+\}\{[0-9]+\})|\(?[A-J]\)?"
    r"|\$[^$\n]+\$|\\\([^\n]+\\\)"
)


_LINE_ONLY = re.compile(
    r"[*]{0,2}(?:\([A-J]\)|[A-J][.:)])[ \t]++(?![^\n]*(?:\b[A-J]\b|\b(?:is|are|was|were|we|let|said)\b))[^\n]{1,60}"
    r"|[A-Za-z](?:_[0-9A-Za-z])?[ \t]*=[ \t]*[-−]?[0-9]+(?:\.[0-9]+)?(?:/[0-9]+)?"
)
_SUM_ONLY = re.compile(
    r"[^A-Za-z\n=<>,;]{0,30}[-+*/×·^][^A-Za-z\n=<>,;]{1,30}(?:=[^A-Za-z\n=<>,;]{1,60}){0,5}"
    r"=[ \t]*([-−]?[$€£]?[0-9][0-9.,/]*)"
)


def choice_with_text(text: str) -> Answer | None:
    """Read a choice with its text that is the whole text: `B. 9.8 m/s`."""
    is_choice = text[:3].strip("(*")[:1].isupper() and _LINE_ONLY.fullmatch(text.strip(" \n*."))
    return answer_at(text, 0, len(text), "line") if is_choice and "=" not in text[:4] else None


def only_number(text: str) -> Answer | None:
    """Read a number, a formula between its signs, `x = 2` or a choice that is the whole text, or the end of a sum."""
    whole = text.strip(" \n*.")
    if _NUMBER_ONLY.fullmatch(whole):
        return bare(text, 0)
    if _LINE_ONLY.fullmatch(whole):
        return answer_at(text, 0, len(text), "line")
    result = _SUM_ONLY.fullmatch(text.rstrip(" \n."))
    return result and answer_at(text, *result.span(1), "line")
