r"""Answers with one key of which the texts say different things: `y = 2` and `x = 2`, `5\text{ km}` and `5\text{ m}`.

Keys drop names and units, because most answers leave them out: `2` is `x = 2` and `y = 2`. Where both texts have them,
they count.
"""

import re
from functools import lru_cache

from outcome_rl.outcomes.guard import total
from outcome_rl.outcomes.keys import canonical_text, real_number
from outcome_rl.outcomes.tolerance.quantities import quantities_differ
from outcome_rl.outcomes.tolerance.within import within_tolerance
from outcome_rl.outcomes.tolerance.words import value_in_sentence

_COORDINATE = re.compile(r"\$?\s*(x|y|z|r|\\theta|\\phi|\\rho)\s*=[^=]+")
_DEGREES = re.compile(r"\^\s*\{?\s*\\circ|°|\bdeg(?:rees?)?\b|\\degrees?")
_RADIANS = re.compile(r"\brad(?:ians?)?\b")
_FRACTION = re.compile(r"\\[dt]?frac|[0-9]/[0-9]")
_PERCENT = re.compile("%|per ?cent")
_UNIT_LIKE = re.compile("[A-Za-z$]")


@lru_cache(maxsize=1 << 13)
@total(lambda gold, answer: True)
def contradicts(gold: str, answer: str) -> bool:
    """Return whether both texts name a coordinate, or both a unit, and these differ.

    Args:
        gold, answer: answers with equal keys.
    """
    coordinates = _COORDINATE.fullmatch(gold), _COORDINATE.fullmatch(answer)
    if coordinates[0] and coordinates[1]:
        return coordinates[0][1] != coordinates[1][1]
    if any(_DEGREES.search(one) and _RADIANS.search(other) for one, other in ((gold, answer), (answer, gold))):
        return real_number(canonical_text(gold)) != 0
    if "%" in answer and not _PERCENT.search(gold) and _FRACTION.search(gold) and not _FRACTION.search(answer):
        value = real_number(canonical_text(gold))
        return value is not None and 0 < value < 1  # `0.5\%` is no half; `33.5\%` may be `33\frac12`
    if not (_UNIT_LIKE.search(gold) and _UNIT_LIKE.search(answer)):
        return False
    return quantities_differ(gold, answer)


@total(lambda a, b: True)
def says_another_value(a: str, b: str) -> bool:
    """Return whether one text is a sentence whose value is another number than the other text.

    math-verify takes a number further on: 4 of `the maximum is 8, attained at x = 4`.
    """
    for sentence, other in ((a, b), (b, a)):
        if value := value_in_sentence(sentence):
            numbers = [real_number(canonical_text(text)) for text in (value, other)]
            if None not in numbers:
                return numbers[0] != numbers[1] and not within_tolerance(other, value)
    return False
