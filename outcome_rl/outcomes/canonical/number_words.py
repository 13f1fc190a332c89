"""Numbers that are spelled out: `twenty-one`, `two thirds`.

A text is read only if the number that it gives is spelled exactly so: `ten two` and `twenty and one` are no numbers.
"""

import re

_ONES_AND_TEENS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen
"""
_TENS_FROM_20 = "twenty thirty forty fifty sixty seventy eighty ninety"
_PARTS_FROM_3 = "third fourth fifth sixth seventh eighth ninth tenth"
ONES, _TENS = _ONES_AND_TEENS.split(), _TENS_FROM_20.split()
_PARTS = {"half": 2, "quarter": 4} | {part: i for i, part in enumerate(_PARTS_FROM_3.split(), start=3)}
_PLURALS = {"halves" if part == "half" else f"{part}s": value for part, value in _PARTS.items()}
_VALUES = {word: value for value, word in enumerate(ONES)} | {ten: 10 * i for i, ten in enumerate(_TENS, start=2)}
_SPELLED = re.compile(
    r"\$?\s*+(?:\\(?:text|textbf|mathrm|mbox)\s*+\{)?\s*+([A-Za-z]+(?:[ -][A-Za-z]+){0,15}+)\s*+\.?\s*+\}?\s*+\$?\.?"
)
_SPACES = re.compile(r"\s+")
_NEGATIVE = ("minus", "negative")


def number_in_words(answer: str) -> str | None:
    """Return a number that is spelled out, in digits; None for any other text."""
    spelled = _SPELLED.fullmatch(_SPACES.sub(" ", answer))
    if spelled is None or len(spelled[1]) < 3:
        return None
    words = spelled[1].casefold().replace("-", " ").split()
    sign = "-" if words[0] in _NEGATIVE else ""
    words = words[bool(sign) :]
    if not words or words[0] not in _VALUES:
        return None
    value = _value(words)
    if value is not None:
        return f"{sign}{value}"
    top, part = _value(words[:-1]), words[-1]
    parts = _PARTS if top == 1 else _PLURALS
    return f"{sign}{top}/{parts[part]}" if top is not None and 0 < top < 20 and part in parts else None


def _value(words: list[str]) -> int | None:
    """Return the whole number below a million that is spelled with these words."""
    words = [word for i, word in enumerate(words) if word != "and" or words[i - 1] not in ("hundred", "thousand")]
    cut = words.index("thousand") if "thousand" in words else 0
    total = _small(words[cut + bool(cut) :]) if words[cut + bool(cut) :] else 0
    thousands = _small(words[:cut]) if cut else 0
    if not words or total is None or thousands is None:
        return None
    value = 1000 * thousands + total
    return value if _in_words(value) == words else None


def _small(words: list[str]) -> int | None:
    value = 0
    for word in words:
        if word == "hundred":
            value *= 100
        elif word in _VALUES:
            value += _VALUES[word]
        else:
            return None
    return value if value < 1000 else None


def _in_words(value: int) -> list[str]:
    if value >= 1000:
        return [*_in_words(value // 1000), "thousand", *(_in_words(value % 1000) if value % 1000 else ())]
    if value >= 100:
        return [ONES[value // 100], "hundred", *(_in_words(value % 100) if value % 100 else ())]
    if value >= 20:
        return [_TENS[value // 10 - 2], *([ONES[value % 10]] if value % 10 else ())]
    return [ONES[value]]
