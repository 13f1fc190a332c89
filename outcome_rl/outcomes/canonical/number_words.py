r"""English number words: `two hundred and six` is `206`, `one point five` is `1.5`."""

from outcome_rl.outcomes.canonical.names import NAMES

SMALL = NAMES["number"]
_TENS = {word: 10 * value for value, word in enumerate(NAMES["tens"], start=2)}
_VALUES = {word: value for value, word in enumerate(SMALL)} | _TENS
_SCALES = {"thousand": 10**3, "million": 10**6}
WORDS = (*_VALUES, "hundred", *_SCALES, "and", "point")
"""All words of a number."""


def number_of(words: list[str]) -> str | None:
    """Return the number that words in lower case say, in digits; None for `one two`."""
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
        elif word == "hundred" and before in _VALUES:
            group *= 100
        elif word in _SCALES and group:
            total, group = total + group * _SCALES[word], 0
        elif word != "and" or before not in ("hundred", *_SCALES):
            return None
        before = word
    return str(total + group) if before not in ("", "and") else None
