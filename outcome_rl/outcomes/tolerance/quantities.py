r"""Quantities in units that have a fixed ratio: `1.5\text{ hours}`, `90 minutes`, `\$0.75`."""

import re
from fractions import Fraction

from outcome_rl.outcomes.canonical.lexer import Incomparable, tokenize, unit_name
from outcome_rl.outcomes.keys import canonical_text, plain_text, real_number

# Dimension, size, names of the unit.
_TABLE = """
length 0.000000001 nm nanometer nanometre
length 0.001 mm millimeter millimetre
length 0.01 cm centimeter centimetre
length 0.1 dm
length 1 m meter metre
length 1000 km kilometer kilometre
length 0.0254 in inch
length 0.3048 ft foot feet
length 0.9144 yd yard
length 1609.344 mi mile
time 0.001 ms millisecond
time 1 s sec second
time 60 min minute
time 3600 h hr hour
time 86400 day
time 604800 week
months 1 month
months 12 year
mass 0.001 mg milligram
mass 1 g gram
mass 1000 kg kilogram
mass 28.349523125 oz ounce
mass 453.59237 lb pound
volume 0.001 ml mL milliliter millilitre
volume 1 l L liter litre
money 1 cent
money 100 dollar
energy 1 J joule
energy 1000 kJ
power 1 W watt
power 1000 kW
force 1 N newton
force 1000 kN
pressure 1 Pa
pressure 1000 kPa
pressure 1000000 MPa
amount 0.001 mmol
amount 1 mol mole
charge 0.001 mC
charge 1 C coulomb
current 0.001 mA
current 1 A amp ampere
voltage 0.001 mV
voltage 1 V volt
voltage 1000 kV
frequency 1 Hz
frequency 1000 kHz
frequency 1000000 MHz
frequency 1000000000 GHz
"""
_UNITS = {
    name: (dimension, Fraction(size))
    for dimension, size, *names in map(str.split, _TABLE.strip().splitlines())
    for name in names
}
_NAMES = "|".join(sorted(_UNITS, key=len, reverse=True))
_POWER = re.compile(rf"(square|sq|cubic|cu)?({_NAMES})s?(?:\^([23]))?")
_EXPONENTS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_DOLLARS = re.compile(r"\s*\$?\s*\\\$\s*(?=[0-9.])")

# `5000 m`: keys read a letter outside of text as a variable.
_BARE = re.compile(
    r"\$?(?P<number>-?[0-9][0-9.,]*(?:/[0-9]+)?)\s*(?P<unit>[A-Za-z]{1,2}(?:\s*/\s*[a-z]{1,3})?(?:\^[23])?)\$?"
)

Dimension = tuple[tuple[str, int], ...]

# `5 ft 8 in`, with the words of units outside of text.
_SUM = re.compile(r"(?:\d+(?:\.\d+)?\s*[A-Za-z]{1,8}\.?(?:\s*(?:and\s+)?|$)){2,4}")
_TERM = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]{1,8})\.?,?")


def quantity(answer: str) -> tuple[Dimension, Fraction] | None:
    """Return the dimension of a quantity, and its size in units that depend on the dimension only; None for all else.

    A sum of several units, `1 hour 30 minutes`, is one quantity.
    """
    if dollars := _DOLLARS.match(answer):
        answer = f"{answer[dollars.end() :].rstrip(' $')} dollars"
    elif (bare := _BARE.fullmatch(answer)) and known_unit(bare["unit"].replace(" ", "")) is not None:
        answer = rf"{bare['number']}\text{{ {bare['unit']}}}"
    elif _SUM.fullmatch(answer) and all(known_unit(unit) for _, unit in _TERM.findall(answer)):
        answer = _TERM.sub(r"\1\\text{ \2}", answer)
    try:
        tokens = tokenize(plain_text(answer))
    except Incomparable:
        return None
    total, dimension, number, last = Fraction(0), None, "", Fraction(0)
    for kind, text in tokens:
        if kind != "unit":
            number += f"{text} "
            continue
        number = number.removeprefix("and ") if dimension is not None else number
        value = real_number(canonical_text(number)) if number[:1].isalnum() or number[:1] in "-\\.(" else None
        unit = known_unit(unit_name(text))
        if value is None or unit is None or dimension not in (None, unit[0]) or (dimension and unit[1] >= last):
            return None  # `3 m and 5 m` are two lengths
        last = unit[1]
        dimension, number = unit[0], ""
        total += value * unit[1]
    return None if dimension is None or number else (dimension, total)


def quantities_differ(a: str, b: str) -> bool:
    """Return whether both texts are quantities, and not the same one."""
    one = quantity(a)
    other = None if one is None else quantity(b)
    return one is not None and other is not None and one != other


def known_unit(name: str) -> tuple[Dimension, Fraction] | None:
    """Return dimension and size of a unit such as `km/h` or `squarecm`, if it is known."""
    parts = re.split("/|per(?!e)", "mile/hour" if name == "mph" else name)  # not within `ampere`
    dimension: list[tuple[str, int]] = []
    size = Fraction(1)
    for sign, part in zip((1, -1), parts, strict=False):
        power = _POWER.fullmatch(part)
        if power is None:
            return None
        kind, one = _UNITS[power[2]]
        exponent = sign * (_EXPONENTS.get(power[1]) or int(power[3] or 1))
        dimension.append((kind, exponent))
        size *= one**exponent
    return (tuple(dimension), size) if len(dimension) == len(parts) else None
