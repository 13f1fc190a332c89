"""Compare general solutions: lists of linear functions of any integer."""

import re
from fractions import Fraction
from math import gcd, lcm

from outcome_rl.outcomes.canonical.arithmetic import Number, add, divide, simplified
from outcome_rl.outcomes.canonical.forms import PARAMETER_NAMES
from outcome_rl.outcomes.canonical.lexer import Incomparable, NotUnderstood, tokenize
from outcome_rl.outcomes.tolerance.same_values import value_of, variables_of

MAX_FAMILIES = 100
_DEGREE = r"^\circ"

_UNKNOWN = r"(?:[xyztu]|\\theta|\\alpha|\\phi|\\varphi)"
_SOLUTION = re.compile(rf"{_UNKNOWN}=.*\\pi.*")
_DECLARED = re.compile(r"(?P<items>.*?)[,;]?(?P<name>[a-z])\\in\\mathbb ?\{?Z\}?")
_SEPARATOR = re.compile(r"[,;]|\\text\{ ?(?:and|or) ?\}")

Family = tuple[Number, Fraction]
"""The distance of neighbouring values, and one of the values divided by it."""


def same_families(gold: str, answer: str) -> bool:
    r"""Return whether two general solutions have the same values: `\frac\pi4 + k\pi` and `n\pi - \frac{3\pi}4`.

    Steps have to be rational multiples of each other, and of all first values. One of the two has to declare its
    integer (`k \in \mathbb{Z}`), or both have to be values of an unknown, `x = k\pi`: `(n - 1)\pi` and `(n - 2)\pi`
    may be formulas. Degrees are read as radians where the other has some.

    Args:
        gold, answer: plain LaTeX.
    """
    if (_DEGREE in gold) != (_DEGREE in answer):
        gold, answer = (text.replace(_DEGREE, r"\cdot\pi/180") for text in (gold, answer))
    declared = [_DECLARED.fullmatch(text) for text in (gold, answer)]
    if declared == [None, None] and not (_SOLUTION.fullmatch(gold) and _SOLUTION.fullmatch(answer)):
        return False
    try:
        sides = [
            _families(text if match is None else match["items"], match and match["name"])
            for text, match in zip((gold, answer), declared, strict=True)
        ]
        if not all(sides):
            return False
        unit = sides[0][0][0]
        ratios = [[simplified(divide(step, unit)) for step, _ in side] for side in sides]
        if not all(type(ratio) is Fraction for side in ratios for ratio in side):
            return False
        every = [ratio for side in ratios for ratio in side]
        whole = Fraction(lcm(*(r.numerator for r in every)), gcd(*(r.denominator for r in every)))
        if sum(int(whole / ratio) for ratio in every) > MAX_FAMILIES:
            return False
    except (NotUnderstood, Incomparable):
        return False
    gold_rests, answer_rests = (
        {
            (first + j) * ratio / whole % 1
            for (_, first), ratio in zip(side, steps, strict=True)
            for j in range(int(whole / ratio))
        }
        for side, steps in zip(sides, ratios, strict=True)
    )
    return gold_rests == answer_rests


def _families(text: str, name: str | None) -> list[Family]:
    """Return the families of a list, none if an item is anything else."""
    found = []
    items = [item.rpartition("=") for item in _SEPARATOR.split(text)]
    if len({label.strip() for label, _, _ in items} - {""}) > 1:  # which value has which name would count
        return []
    for _, _, value in items:
        for sign in "+-" if "\\pm" in value else "+":
            tokens = tokenize(value.replace("\\pm", sign))
            names = variables_of(tokens)
            if len(names) != 1 or not (names == {name} or (name is None and names <= PARAMETER_NAMES)):
                return []
            zero, one, two = (value_of(tokens, {next(iter(names)): Fraction(k)}, pieces=False) for k in range(3))
            if zero is None or one is None or two is None:
                return []
            step = add(one, -zero)
            if not step or add(add(two, -one), -step):
                return []
            first = simplified(divide(zero, abs(step)))
            if type(first) is not Fraction:
                return []
            found.append((abs(step), first))
    return found
