"""Units of measurement and currencies, with dimension and size, from one table (`units.txt`)."""

import re
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from functools import cache, lru_cache
from importlib.resources import files
from itertools import pairwise

Dimensions = tuple[tuple[str, int], ...]
Readings = frozenset[tuple[str, Fraction]]
"""What a unit may be: its dimension, such as `L2*T-1`, and its size in base units."""

_Reading = tuple[Dimensions, Fraction]

_PREFIXES = dict(zip("QRYZEPTGMkhdcmunpfazyrq", (*range(30, 2, -3), 2, -1, -2, -3, *range(-6, -31, -3)), strict=True))
_PREFIXES |= {"": 0, "da": 1, "µ": -6, "μ": -6}
_PREFIX_NAMES = {"tera": 12, "giga": 9, "mega": 6, "kilo": 3, "hecto": 2, "deci": -1, "centi": -2, "milli": -3}
_PREFIX_NAMES |= {"micro": -6, "nano": -9, "pico": -12, "": 0}
_DIMENSION = re.compile(r"([A-Za-z]+)(-?[0-9]+)?")
_POWERS = {"square": 2, "sq": 2, "平方": 2, "cubic": 3, "cu": 3, "立方": 3}
_RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-")


_LINES = [line for line in files(__package__).joinpath("units.txt").read_text("utf-8").splitlines() if line[0] != "#"]
_NAMES = sorted({name for line in _LINES for name in line.partition(";")[2].split()}, key=len, reverse=True)
COUNTER = rf"(?:{'|'.join(name for name in _NAMES if not name.isascii())})"
"""Chinese, Japanese and Korean units and counters, which need no space behind a number."""
_CODES = sorted({word for line in _LINES for word in re.findall(r" ([A-Z]{3})(?= |$)", line.partition(";")[0])})
_BY_NAME = "|".join(name for name in _NAMES if name.isascii())
_WORD = (
    rf"(?:(?i:(?:{'|'.join(filter(None, _PREFIX_NAMES))})?(?:{_BY_NAME}|unit)(?:e?s)?)|{'|'.join(_CODES)}"
    r"|[cmk]m|kg|lbs?|oz|ft|hrs?|mins?|secs?|mph)"
)
UNIT_WORDS = rf"(?:(?:square|cubic|sq\.?|cu\.?) ?)?{_WORD}(?:(?: ?per ?|/)(?:{_WORD}|h))?"
"""Units that plain text may have behind a number: names, codes of currencies, and symbols that are no product of names.

Of a letter alone, and of other words, nobody knows: `5 m` may be a product, `5 million` is a number."""


@cache
def _table() -> Mapping[str, tuple[_Reading, ...]]:
    """Return what each name of a unit may be."""
    table: dict[str, list[_Reading]] = {}
    for line in _LINES:
        if line.startswith("+"):
            continue
        head, _, names = line.removeprefix("* ").partition(";")
        size, dimension, *symbols = head.split()
        dimensions = tuple((name, int(power or 1)) for name, power in _DIMENSION.findall(dimension))
        for prefixes, words in ((_PREFIXES, symbols), (_PREFIX_NAMES, names.split())):
            for prefix, power in prefixes.items() if line.startswith("*") else (("", 0),):
                for word in words:
                    table.setdefault(prefix + word, []).append((dimensions, Fraction(size) * Fraction(10) ** power))
    return {name: tuple(readings) for name, readings in table.items()}


_FACTOR = re.compile(
    r"(square|sq\.?|cubic|cu\.?|平方|立方)? ?((?:(?![0-9^⁻⁰¹²³⁴-⁹−./*·⋅ ]).)+?)\.?"
    r"(?:\^?[{(]?([-−]?[1-9]|⁻?[¹²³⁴-⁹])[})]?)?"
)


@lru_cache(maxsize=1 << 12)
def readings_of(unit: str) -> Readings:
    """Return dimension and size of a unit such as `km/h`, `N·m`, `square cm` or `m s^{-2}`; nothing for other texts."""
    unit = re.sub(r"\\mu\s*(?=[A-Za-z])", "µ", re.sub(r"\bper ", "/", unit).replace(r"\Omega", "Ω"))
    unit = unit.replace(" /", "/").strip()
    if len(unit) > 40:
        return frozenset()
    found: set[_Reading] = {((), Fraction(1))}
    for i, part in enumerate(re.sub(r"[()]", "", unit).split("/")):
        names = _parts(part.strip()) if part.strip() else ()
        for name in names:
            factor = _FACTOR.fullmatch(name)
            readings = factor and _named(factor[2])
            if not factor or not readings:
                return frozenset()
            power = int(factor[3].translate(_RAISED)) if factor[3] else _POWERS.get((factor[1] or "").rstrip("."), 1)
            power *= -1 if i else 1
            found = {_times(one, other, power) for one in found for other in readings}
    return frozenset(
        ("*".join(f"{name}{power}" for name, power in dims if power), size) for dims, size in found if dims
    )


_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([^\W\d_]{1,12}?)\.?(?: ?,? ?and ?| ?, ?| )?(?=[0-9]|\Z)")


@lru_cache(maxsize=1 << 12)
def sum_of_units(text: str) -> Readings:
    """Return dimension and size of a quantity in several units, the largest first; nothing for other texts."""
    parts: list[tuple[Fraction, dict[str, Fraction]]] = []
    at = 0
    while part := _QUANTITY.match(text, at):
        parts.append((Fraction(part[1]), dict(readings_of(part[2]))))
        at = part.end()
    if len(parts) < 2 or at < len(text):
        return frozenset()
    shared = set.intersection(*(set(units) for _, units in parts))
    return frozenset(
        (name, sum((number * units[name] for number, units in parts), Fraction(0)))
        for name in shared
        if all(one[name] > other[name] for (_, one), (_, other) in pairwise(parts))
    )


def _parts(product: str) -> list[str]:
    """Split a product of units; `square cm` and one name of two words are one part."""
    return re.split(r" ?[·⋅*] ?|(?<!square)(?<!sq)(?<!sq\.)(?<!cubic)(?<!cu)(?<!cu\.) |(?<=[0-9])\.(?=[a-z])", product)


def _named(name: str) -> tuple[_Reading, ...]:
    """Return what a name may be, in the singular or the plural, with a capital or without."""
    table = _table()
    for word in (name, name.lower() if len(name) > 3 else name):
        for singular in (word, word.removesuffix("s") if len(word) > 2 else word, word.removesuffix("es")):
            if singular in table and (singular == word or len(singular) > 1):
                return table[singular]
    return ()


def _times(one: _Reading, other: _Reading, power: int) -> _Reading:
    powers = Counter(dict(one[0]))
    powers.update({name: exponent * power for name, exponent in other[0]})
    return tuple(sorted(powers.items())), one[1] * other[1] ** power
