r"""Answers with one key of which the texts say different things: `y = 2` and `x = 2`, `5\text{ km}` and `5\text{ m}`.

Keys drop names and units, because most answers leave them out: `2` is `x = 2` and `y = 2`. Where both texts have them,
they count.
"""

import re
from functools import lru_cache

from outcome_rl.outcomes.tolerance.quantities import quantity

_COORDINATE = re.compile(r"\$?\s*(x|y|z|r|\\theta|\\phi|\\rho)\s*=[^=]+")
_UNIT_LIKE = re.compile("[A-Za-z$]")


@lru_cache(maxsize=1 << 13)
def contradicts(gold: str, answer: str) -> bool:
    """Return whether both texts name a coordinate, or both a unit, and these differ.

    Args:
        gold, answer: answers with equal keys.
    """
    coordinates = _COORDINATE.fullmatch(gold), _COORDINATE.fullmatch(answer)
    if coordinates[0] and coordinates[1]:
        return coordinates[0][1] != coordinates[1][1]
    if not (_UNIT_LIKE.search(gold) and _UNIT_LIKE.search(answer)):
        return False
    one, other = quantity(gold), quantity(answer)
    return one is not None and other is not None and one != other
