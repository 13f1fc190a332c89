"""Solve linear and quadratic conditions on one variable."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from outcome_rl.outcomes.canonical import intervals
from outcome_rl.outcomes.canonical.arithmetic import Number, add, divide, is_real, multiply, power, simplified
from outcome_rl.outcomes.canonical.intervals import INFINITY, RealSet


def coefficients(x: Sequence[Number], values: Sequence[Number]) -> tuple[Number, Number, Number] | None:
    """Return a, b, c of the function a x^2 + b x + c with these values at four numbers x; None for any other one.

    Newton's divided differences: the third one of a quadratic function is 0.
    """
    columns = [list(values)]
    for step in range(1, len(x)):
        rises = [add(high, -low) for low, high in pairwise(columns[-1])]
        columns.append([divide(rise, add(x[i + step], -x[i])) for i, rise in enumerate(rises)])
    value, slope, a, rest = (column[0] for column in columns)
    if rest:
        return None
    b = add(slope, -multiply(a, add(x[0], x[1])))
    c = add(value, -multiply(x[0], add(b, multiply(a, x[0]))))
    return simplified(a), simplified(b), simplified(c)


def roots(a: Number, b: Number, c: Number) -> list[Number]:
    """Return the roots of a x^2 + b x + c: a double one twice, real ones in ascending order."""
    if not a:
        return [simplified(divide(-c, b))] if b else []
    middle = divide(b, -2 * a)
    square = simplified(add(multiply(middle, middle), -divide(c, a)))
    distance = power(square, Fraction(1, 2)) if square else square
    return [simplified(add(middle, -distance)), simplified(add(middle, distance))]


def solutions(a: Number, b: Number, c: Number, operator: str) -> RealSet | None:
    """Return the real numbers x at which a x^2 + b x + c stands in a relation to 0; None if that is not real.

    Args:
        a, b, c: coefficients; a or b is not 0.
        operator: `<`, `>`, `\\leq`, `\\geq` or `\\neq`.
    """
    if not all(map(is_real, (a, b, c))):
        return None
    zeros = [root for root in roots(a, b, c) if is_real(root)]
    ends = [-INFINITY, *zeros, INFINITY]
    pieces = [intervals.interval(low, False, high, False) for low, high in pairwise(ends)][::-1]
    if operator != r"\neq":  # the sign changes at every root
        pieces = pieces[(operator in (">", r"\geq")) != ((a or b) > 0) :: 2]
    if operator in (r"\leq", r"\geq"):
        pieces += map(intervals.point, zeros)
    return intervals.union(pieces)
