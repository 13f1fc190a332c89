r"""Quantities in units that have a fixed ratio: `1.5\text{ hours}`, `90 minutes`, `\$0.75`."""

import re
from fractions import Fraction

from outcome_rl.outcomes.canonical.lexer import Incomparable, tokenize, unit_name
from outcome_rl.outcomes.keys import canonical_text, plain_text, real_number

# Dimension -> units and their sizes.
_SIZES = {
    "length": {
        **{"mm millimeter millimetre": "0.001", "cm centimeter centimetre": "0.01", "dm": "0.1", "m meter metre": "1"},
        **{"km kilometer kilometre": "1000", "in inch": "0.0254", "ft foot feet": "0.3048", "yd yard": "0.9144"},
        "mi mile": "1609.344",
    },
    "time": {
        **{"s sec second": "1", "min minute": "60", "h hr hour": "3600", "day": "86400", "week": "604800"},
    },
    "mass": {"mg milligram": "0.001", "g gram": "1", "kg kilogram": "1000", "oz ounce": "28.349523125"}
    | {"lb pound": "453.59237"},
    "volume": {"ml mL milliliter millilitre": "0.001", "l L liter litre": "1"},
    "money": {"cent": "1", "dollar": "100"},
    "energy": {"J joule": "1", "kJ": "1000"},
    "power": {"W watt": "1", "kW": "1000"},
    "force": {"N newton": "1", "kN": "1000"},
    "pressure": {"Pa": "1", "kPa": "1000"},
    "frequency": {"Hz": "1", "kHz": "1000", "MHz": "1000000"},
}
_UNITS = {
    name: (dimension, Fraction(size))
    for dimension, sizes in _SIZES.items()
    for names, size in sizes.items()
    for name in names.split()
}
_POWER = re.compile(r"(square|sq|cubic|cu)?(.{3,}(?=s)|.+?)s?(?:\^([23]))?")
_EXPONENTS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_DOLLARS = re.compile(r"\s*\$?\s*\\\$\s*(?=[0-9.])")

Dimension = tuple[tuple[str, int], ...]


def quantity(answer: str) -> tuple[Dimension, Fraction] | None:
    """Return the dimension of a quantity, and its size in units that depend on the dimension only; None for all else.

    A sum of several units, `1 hour 30 minutes`, is one quantity.
    """
    if dollars := _DOLLARS.match(answer):
        answer = f"{answer[dollars.end() :].rstrip(' $')} dollars"
    try:
        tokens = tokenize(plain_text(answer))
    except Incomparable:
        return None
    total, dimension, number = Fraction(0), None, ""
    for kind, text in tokens:
        if kind != "unit":
            number += f"{text} "
            continue
        value, unit = real_number(canonical_text(number.removeprefix("and "))), _unit(unit_name(text))
        if value is None or unit is None or dimension not in (None, unit[0]):
            return None
        dimension, number = unit[0], ""
        total += value * unit[1]
    return None if dimension is None or number else (dimension, total)


def _unit(name: str) -> tuple[Dimension, Fraction] | None:
    """Return dimension and size of a unit such as `km/h` or `squarecm`, if it is known."""
    parts = re.split("/|per", "mile/hour" if name == "mph" else name)
    dimension: list[tuple[str, int]] = []
    size = Fraction(1)
    for sign, part in zip((1, -1), parts, strict=False):
        power = _POWER.fullmatch(part)
        if power is None or power[2] not in _UNITS:
            return None
        kind, one = _UNITS[power[2]]
        exponent = sign * (_EXPONENTS.get(power[1]) or int(power[3] or 1))
        dimension.append((kind, exponent))
        size *= one**exponent
    return (tuple(dimension), size) if len(dimension) == len(parts) else None
