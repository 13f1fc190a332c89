"""Read a rational number, exactly, in the spellings that answers use.

Integers with thousands separators, terminating decimals, fractions (`\\frac{a}{b}`, `\\frac12`, `a/b`), mixed numbers,
scientific notation with an exponent of at most two digits, each optionally signed and behind `x=`. The grammar is
closed and works on digits only: no arithmetic expression is ever evaluated.
"""

import re
from fractions import Fraction

_DECIMAL = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,3}(?: [0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+"
_ARGUMENT = rf"([0-9]|\{{[+-]?(?:{_DECIMAL})\}})"
_VARIABLE = re.compile(r"(?:[A-Za-z]|\\[a-z]+)(?:_(?:[A-Za-z0-9]|\{[A-Za-z0-9]+\}))?=")
_MIXED = re.compile(rf"([0-9]+)(?: ([0-9]+)/([0-9]+)|\\frac{_ARGUMENT}{_ARGUMENT})")
_FRACTION = re.compile(rf"({_DECIMAL})/({_DECIMAL})|\\frac{_ARGUMENT}{_ARGUMENT}")
_SCIENTIFIC = re.compile(
    rf"(?:({_DECIMAL})(?:\\times|\\cdot|\*))?10\^([0-9]|\{{[+-]?[0-9]{{1,2}}\}})|({_DECIMAL})[eE]([+-]?[0-9]{{1,2}})"
)
_NUMBER = re.compile(_DECIMAL)


def parse_rational(text: str) -> Fraction | None:
    """Return the rational number that a text spells, or None.

    Args:
        text: an answer after `plain_latex`, without a unit, of at most a few thousand characters (Python's `int`
            refuses more than 4300 digits).
    """
    text = text[variable.end() :] if (variable := _VARIABLE.match(text)) else text
    sign = -1 if text.startswith("-") else 1
    text = text[1:] if text.startswith(("+", "-")) else text
    value = _unsigned(text)
    return None if value is None else sign * value


def _unsigned(text: str) -> Fraction | None:
    if _NUMBER.fullmatch(text):
        return _decimal(text)
    if mixed := _MIXED.fullmatch(text):
        whole, *parts = (part for part in mixed.groups() if part is not None)
        fraction = _quotient(*parts)
        # `2\frac{3}{2}` is a product to TeX and no mixed number to anybody: leave it to the general comparison.
        return int(whole) + fraction if fraction is not None and 0 <= fraction < 1 else None
    if fraction_match := _FRACTION.fullmatch(text):
        return _quotient(*(part for part in fraction_match.groups() if part is not None))
    if scientific := _SCIENTIFIC.fullmatch(text):
        mantissa, exponent = scientific[1] or scientific[3] or "1", scientific[2] or scientific[4]
        return _decimal(mantissa) * Fraction(10) ** int(exponent.strip("{}"))
    return None


def _quotient(numerator: str, denominator: str) -> Fraction | None:
    divisor = _decimal(denominator)
    return _decimal(numerator) / divisor if divisor else None


def _decimal(text: str) -> Fraction:
    return Fraction(text.strip("{}").replace(",", "").replace(" ", ""))
