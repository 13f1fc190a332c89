r"""Generous comparison with a gold answer, for correctness only: rounding, labels and units, quantities in other units.

Outcome keys are strict, because equality of outcomes has to be transitive. Correctness may be more generous: the gold
answer `3, 4` accepts `p = 3, q = 4`, and `180.67` accepts `\frac{542}{3}`. A label or unit that one text lacks may be
dropped; both texts' have to agree.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from outcome_rl.outcomes.canonical.spellings import respelled
from outcome_rl.outcomes.canonical.units import Readings, readings_of, sum_of_units
from outcome_rl.outcomes.extraction.announcements import CHANGES, LIMITS
from outcome_rl.outcomes.guard import total
from outcome_rl.outcomes.keys import MAX_ANSWER_CHARS, PLAIN_NUMBER, canonical_text, plain_text, real_number

MIN_DIGITS = 3
"""Significant digits that a decimal gold answer needs to be one that was rounded: 0.46 is not 0.5."""

QUALIFIER = re.compile(
    r"\b(?:if|unless|except|without|least|most|more|less|fewer|greater|higher|lower|over|under|above|below"
    r"|up|between|about|approximately|almost|nearly|exactly|only|all|never|no|not|nor|neither|half|third|quarters?"
    r"|\w{3,}ths?|twice|double|triple|negative|remainder|ago|before|k|ppm|bps|basis|neg|mille|onwards?|so|and|or|prime"
    r"|wrong|false|fails?|excluding|incorrect|impossible|undefined|inclusive|exclusive|tens|zeros"
    r"|times|scores?)\b"
    rf"|{CHANGES}|{LIMITS}"
)
"""Words that restrict, compare, scale or change the number beside them: `5 dozen` and `5 or more` are not 5."""

_VERB = re.compile(r"\b(?:is|are|was|to|with)\b")
_NEUTRAL = re.compile(r"(?:square|cubic|sq\.?|cu\.?)?units?[²³]?|(?:平方|立方)?单位")

_DELIMITERS, _DOLLARS = re.compile(r"\\[()\[\]]"), re.compile(r"(?<!\\)\$")
_SPACES = re.compile(r"(?:\\[ ,;:!]|~|\s|\\q?quad(?![A-Za-z]))+")
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm)?|mathrm|mbox) *\{([^{}]*)\}")
_DEGREES = re.compile(r"\^ *\{? *\\circ *\}?|°|\\degrees?(?![A-Za-z])")
_POWER = re.compile(r"(?<=[^\W\d_]) *\^ *(?:\{ *([-−]?[1-9]) *\}|([-−]?[1-9]))")
_RAISED = str.maketrans("-−123456789", "⁻⁻¹²³⁴⁵⁶⁷⁸⁹")
_PREFIX = re.compile(
    r"(-?) *(\\?[$€£¥₹₩₽]|\\(?:euro|pounds|yen)(?![A-Za-z])|Rs\.?|USD|EUR|GBP|INR|CNY|RMB|JPY) *(?=[\d.])"
)
_ORDINAL = re.compile(r"(?:st|nd|rd|th)\W*$")
_PLURAL = re.compile(r"(?<=ch)es\b|(?<=[a-z]{2})s\b")
# A letter that is in no command, or a command or sign of a unit or a currency.
_UNIT_SIGN = re.compile(
    r"(?<![\\A-Za-z])[^\W\d_]|\\(?:text|math|mbox|circ|degree|euro|pounds|yen|Omega|mu)|[%$€£¥¢₹₩₽￥°]"
)
_OF_SEVERAL = ("{", "(", "[", "M[")  # keys of sets, tuples, intervals and matrices


class Quantity(NamedTuple):
    """A number and the unit behind it, as written; without a unit it is a number."""

    number: str
    unit: str


@lru_cache(maxsize=1 << 13)  # the gold answer of many responses
def quantity(answer: str) -> Quantity | None:
    """Return the number and the unit of an answer; None of anything else, such as `5 dozen` or `5 or more`."""
    if _UNIT_SIGN.search(answer) is None:
        return None if real_number(canonical_text(answer)) is None else Quantity(answer, "")
    if canonical_text(answer).startswith(_OF_SEVERAL):
        return None
    text = _without_markup(answer)
    prefix = _PREFIX.match(text)
    if prefix is not None:
        text = f"{prefix[1]}{text[prefix.end() :]}"
    end = len(text)
    while end and (
        (text[end - 1].isalpha() and text[end - 1] != "π") or text[end - 1] in " /.·⋅*⁻¹²³⁴⁵⁶-%$€£¥¢₹₩₽°℃℉()"
    ):
        end -= 1
    command = re.match("[A-Za-z]+", text[end:]) if text[:end].endswith("\\") else None  # `\pi` is no unit
    end += len(command[0]) if command else len(text[end:]) - len(text[end:].lstrip(")"))
    number, unit = text[:end].strip(), text[end:].strip(" .")
    is_glued = len(unit) == 1 and unit.isascii() and unit.isalpha() and text[end : end + 1] != " "
    if is_glued or (unit and (_ORDINAL.search(number) or not _is_unit(unit))):
        return None
    if prefix is not None:
        unit = f"{prefix[2].removeprefix(chr(92)).rstrip('.')}{'/' if unit else ''}{unit.removeprefix('per ')}"
    return None if real_number(canonical_text(number)) is None else Quantity(number, unit)


def _without_markup(answer: str) -> str:
    """Return an answer with its units as words: `5\\text{ cm}^2` as `5 cm²`, `30^\\circ` as `30 degree`."""
    text = _DELIMITERS.sub("", respelled(answer).replace("$$", ""))
    if len(_DOLLARS.findall(text)) % 2 == 0:
        text = _DOLLARS.sub("", text)  # they delimit a formula
    text = _DEGREES.sub(" degree ", _TEXT.sub(r" \1 ", text))
    text = _POWER.sub(lambda power: (power[1] or power[2]).translate(_RAISED), text.replace(r"\cdot", "·"))
    return _SPACES.sub(" ", text.replace("￥", "¥").replace(r"\%", "%")).strip(" .")


def _is_unit(unit: str) -> bool:
    """Whether words behind a number are a unit or a noun; fewer than three letters have to be a known unit."""
    if unit in "%$€£¥¢₹₩₽" or readings_of(unit):
        return True
    is_word = sum(map(str.isalpha, unit)) > 2 or (unit[0].isalpha() and unit >= "\u0400")  # a Greek letter is a factor
    return is_word and not QUALIFIER.search(unit.casefold()) and not _VERB.search(unit)


_MAX_SUM = 80


@lru_cache(maxsize=1 << 13)
def sizes(answer: str) -> Readings:
    """Return what a quantity may be; nothing for a text that is none, or a number.

    A unit without a size is a dimension of its own: `5 apples` are no `5 pears`.
    """
    if _UNIT_SIGN.search(answer) is None:
        return frozenset()
    one = quantity(answer)
    if one is None and len(answer) < _MAX_SUM and (total := sum_of_units(_without_markup(answer).replace(" /", "/"))):
        return total
    value = None if one is None else real_number(canonical_text(one.number))
    if one is None or value is None or not one.unit or _NEUTRAL.fullmatch(one.unit.replace(" ", "")):
        return frozenset()
    known = readings_of(one.unit) or {(_PLURAL.sub("", one.unit.casefold()), Fraction(1))}
    return frozenset((dimension, value * size) for dimension, size in known)


_COORDINATE = re.compile(r"\$?\s*(x|y|z|r|\\theta|\\phi|\\rho)\s*=[^=xyz]+")


@lru_cache(maxsize=1 << 13)
@total(lambda gold, answer: True)
def contradicts(gold: str, answer: str) -> bool:
    """Return whether both texts name a coordinate, or both a unit, and these differ.

    Keys drop names and units, because most answers leave them out: `2` is `x = 2` and `y = 2`.

    Args:
        gold, answer: answers with equal keys.
    """
    coordinates = _COORDINATE.fullmatch(gold), _COORDINATE.fullmatch(answer)
    if coordinates[0] and coordinates[1]:
        return coordinates[0][1] != coordinates[1][1]
    if max(len(gold), len(answer)) > MAX_ANSWER_CHARS:
        return False
    one = sizes(gold)
    other = sizes(answer) if one else one
    return bool(one and other) and one.isdisjoint(other)


_INTEGER = re.compile("-?[0-9]+")
_RATIO = r"[A-Za-z]{1,2}:[A-Za-z]{1,2}"
_NAME = r"(?:\\[A-Za-z]+ ?|[A-Za-z])(?:_(?:\{[^{}]*\}|[A-Za-z0-9]))?'*"
_LABEL = re.compile(
    rf"(?:m?\\angle ?[A-Z]{{1,3}}|{_NAME}(?:\({_NAME}\))?|[fghFGHPE]\([^()=]*\)|[A-Z]{{2,3}}|{_RATIO}|\|[^|=xy]*\|"
    r"|\\text\{[^{}]*\})=(?P<value>[^=<>]+)"
)
_TUPLE_LABEL = re.compile(r"\([^()=]*\)=\((?P<values>[^=]*)\)")
_SEPARATOR = re.compile(r"[,;]|\\text\{ ?(?:and|且|和) ?\}")
_DECIMAL = re.compile(
    r"(?P<digits>-?[0-9]*\.[0-9]+)"
    r"(?:[eE](?P<e>[-+]?[0-9]{1,3})|(?:\\times|\\cdot) ?10\^\{?(?P<power>-?[0-9]{1,3})\}?)?"
)
# Behind four digits or more without a separator a comma separates no thousands, and hardly a list.
_CONGRUENCE = re.compile(
    rf"(?:{_NAME}\\equiv ?)?(-?[0-9]+)(?:\\pmod ?(?:\{{[0-9]+\}}|[0-9])|\(?\\[bp]?mod ?(?:\{{[0-9]+\}}|[0-9]+)\)?)"
)
_DECIMAL_COMMA = re.compile(r"(-?[0-9]{4,}),([0-9]{2})")


@lru_cache(maxsize=1 << 13)
@total(lambda gold, answer: False)
def within_tolerance(gold: str, answer: str) -> bool:
    r"""Return whether an answer agrees with a gold answer of another key.

    It does if it rounds to a decimal gold answer, if only one of the two has labels, a unit or a noun, or if both are
    one quantity in different units; docs/outcomes.md has the table of all of them, and of what does not agree.

    Texts of more than `MAX_ANSWER_CHARS` agree with nothing.

    Args:
        gold: the gold answer.
        answer: the answer of a response.
    """
    if _INTEGER.fullmatch(gold) and _INTEGER.fullmatch(answer):
        return False  # equal ones have one key
    if max(len(gold), len(answer)) > MAX_ANSWER_CHARS:
        return False  # as keys leave them unread
    one, other = sizes(gold), sizes(answer)
    if one and other and not one.isdisjoint(other):
        return True
    if _rounds_to(answer, gold):
        return True
    if one and other:
        return False
    if canonical_text(gold) in _readings(answer) | _without_unit(answer):
        return True
    return canonical_text(answer) in _readings(gold) | _without_unit(gold)


def _rounds_to(answer: str, gold: str) -> bool:
    """Whether an answer is a number that rounds to a decimal gold answer, which has to have enough digits."""
    stated, given = quantity(gold), quantity(answer)
    decimal = None if stated is None else _DECIMAL.fullmatch(plain_text(stated.number))
    if stated is None or given is None or decimal is None:
        return False
    units = [readings_of(one.unit) or frozenset(((one.unit, Fraction(1)),)) for one in (stated, given) if one.unit]
    value = real_number(canonical_text(given.number))
    if len(decimal["digits"].lstrip("-0.").replace(".", "")) < MIN_DIGITS or value is None:
        return False
    if len(units) == 2 and units[0].isdisjoint(units[1]):
        return False
    scale = Fraction(10) ** int(decimal["e"] or decimal["power"] or 0)
    places = len(decimal["digits"].partition(".")[2])
    return bool(abs(value - Fraction(decimal["digits"]) * scale) * 2 * 10**places <= scale)


@lru_cache(maxsize=1 << 13)
def _without_unit(answer: str) -> frozenset[str]:
    """Return the canonical texts of a quantity's number: of degrees in radians, of a percentage over 100 too."""
    one = quantity(answer)
    if one is None or not one.unit:
        return frozenset()
    numbers = [one.number]
    if one.unit == "degree":
        numbers.append(rf"({one.number}) \cdot \pi / 180")
    elif one.unit == "%":
        numbers.append(f"({one.number})/100")
    return frozenset(map(canonical_text, numbers))


@lru_cache(maxsize=1 << 13)
def _readings(answer: str) -> frozenset[str]:
    """Return the canonical texts that an answer stands for without its labels."""
    if PLAIN_NUMBER.fullmatch(answer):
        return frozenset()
    plain, readings = plain_text(answer), set[str]()
    if labelled := _TUPLE_LABEL.fullmatch(plain):
        readings.add(canonical_text(labelled["values"]))
    labels = [_LABEL.fullmatch(part.strip()) for part in _SEPARATOR.split(plain)]
    values = [label["value"] for label in labels if label is not None]
    if len(values) == len(labels):
        readings.add(canonical_text(", ".join(values)))
        if len(values) == 1:
            readings |= _without_unit(values[0])
    if congruence := _CONGRUENCE.fullmatch(plain):
        readings.add(canonical_text(congruence[1]))
    if comma := _DECIMAL_COMMA.fullmatch(plain):
        readings.add(canonical_text(f"{comma[1]}.{comma[2]}"))
    return frozenset(readings - {""})
