r"""English number words: `two hundred and six` is `206`, `one point five` is `1.5`, `three quarters` `\frac{3}{4}`."""

from outcome_rl.outcomes.canonical.names import NAMES

SMALL = NAMES["number"]
_TENS = {word: 10 * value for value, word in enumerate(NAMES["tens"], start=2)}
_VALUES = {word: value for value, word in enumerate(SMALL)} | _TENS
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "eighth": 8, "tenth": 10}
WORDS = (*_VALUES, "hundred", *_SCALES, *_PARTS, *(f"{part}s" for part in _PARTS), "a", "and", "point")
"""All words of a number."""


def number_of(words: list[str]) -> str | None:
    """Return the number that words in lower case say, in digits or as a fraction; None for `one two`."""
    words = ["one", *words[1:]] if words[0] == "a" and len(words) > 1 else words  # `a hundred`
    if len(words) == 2 and (part := _PARTS.get(words[1].removesuffix("s"))) and (top := _whole(words[:1])):
        return rf"\frac{{{top}}}{{{part}}}"
    if "point" not in words:
        return _whole(words)
    at = words.index("point")
    whole, digits = _whole(words[:at]), _whole(words[at + 1 :])  # `point eighty-seven`
    if digits is None:
        digits = "".join(_whole([word]) or "?" for word in words[at + 1 :])
    return None if whole is None or not digits.isdigit() else f"{whole}.{digits}"


def _whole(words: list[str]) -> str | None:
    total, group, before = 0, 0, ""
    for word in words:
        value = _VALUES.get(word)
        if value is not None and (before not in _VALUES or (before in _TENS and 0 < value < 10)):
            group += value
        elif word == "hundred" and before in ("", *_VALUES):
            group = 100 * (group or 1)
        elif word in _SCALES and (group or not total):
            total, group = total + _SCALES[word] * (group or 1), 0
        elif word != "and" or before not in ("hundred", *_SCALES):
            return None
        before = word
    return str(total + group) if before not in ("", "and") else None
