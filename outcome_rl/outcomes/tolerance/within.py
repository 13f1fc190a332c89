r"""Tolerant comparison with a gold answer: rounding, labels, units, values, and a few conventions of notation.

Outcome keys are strict, because equality of outcomes has to be transitive. Correctness may be
more generous: the gold answer `3, 4` accepts `p = 3, q = 4`, and `180.67` accepts `\frac{542}{3}`.
"""

import re
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache

from outcome_rl.outcomes.canonical.latex import UNIT_WORDS_IN_TEXT, unwrap_text
from outcome_rl.outcomes.canonical.lexer import Incomparable, tokenize, units_in
from outcome_rl.outcomes.canonical.notations import is_word
from outcome_rl.outcomes.guard import total
from outcome_rl.outcomes.keys import MAX_ANSWER_CHARS, Tag, canonical_text, plain_text, real_number
from outcome_rl.outcomes.refutation import QUALIFIER
from outcome_rl.outcomes.tolerance.chemistry import same_chemistry
from outcome_rl.outcomes.tolerance.quantities import known_unit, quantities_differ, quantity
from outcome_rl.outcomes.tolerance.same_families import same_families
from outcome_rl.outcomes.tolerance.same_pieces import same_pieces
from outcome_rl.outcomes.tolerance.same_solutions import same_solutions
from outcome_rl.outcomes.tolerance.same_values import same_values
from outcome_rl.outcomes.tolerance.spellings import respelled
from outcome_rl.outcomes.tolerance.words import said, same_words

MIN_DIGITS = 3
"""Significant digits that a decimal gold answer needs to be one that was rounded: 0.46 is not 0.5."""

_INTEGER = re.compile("-?[0-9]+")
# A number with digits behind its point or in scientific notation, and a unit.
_MEASURED = re.compile(
    r"(?P<digits>-?[0-9]*\.?[0-9]+)"
    r"(?:[eE](?P<e>[-+]?[0-9]{1,3})|(?:\\times|\\cdot) ?10\^\{?(?P<power>-?[0-9]{1,3})\}?)?"
    r"(?P<unit>\^\\circ(?:\\text\{ ?[A-Z] ?\}|[CF])?"
    r"|(?:\\text\{[^{}0-9]*\}|\\cdot|[A-Za-z]++|[ /]|\^\{?-?[1-4]\}?){0,8}+)"
)
_TEMPERATURE = re.compile(r"\^\\circ(?:\\text\{ ?[CF] ?\}|[CF])?")
_SPACED = re.compile("[A-Za-z] +[A-Za-z]")  # a product of units
_JOINTS = re.compile(r"\\text|\\cdot|[{} ]")
_DECIMAL_COMMA = re.compile(r"(-?[0-9]+),([0-9]{1,2}|[0-9]{4,})")
_RATIO_OR_TIME = re.compile(r"([0-9]{1,2}):([0-5][0-9])")
_NAME = r"(?:\\[A-Za-z]+ ?|[A-Za-z])(?:_(?:\{[^{}]*\}|[A-Za-z0-9]))?'*"
_LABEL = re.compile(
    rf"(?:m?\\angle ?[A-Z]{{1,3}}|{_NAME}(?:\({_NAME}\))?|[A-Z]{{2,3}}|\|[^|=]*\||\\text\{{[^{{}}]*\}})"
    r"=(?P<value>[^=<>]+)"
)
_TUPLE_LABEL = re.compile(r"\([^()=]*\)=\((?P<values>[^=]*)\)")
_FUNCTION = re.compile(r"[A-Za-z]\((?P<variable>[a-z])\)=(?P<value>[^=]+)")
_NUMBER = r"(?P<number>-?[0-9][0-9,]*(?:\.[0-9]+)?) ?"
_WITH_UNIT = re.compile(_NUMBER + r"\\text\{ ?(?P<unit>[A-Za-z]{3}[A-Za-z .]*)\}")
# A product of units behind a number, `kg \cdot m / s`; a power of one behind a space, `\pi\;m^2`; Chinese for "units".
_UNIT = r"\\(?:text|mathrm)\s*+\{\s*+~?\s*+[A-Za-z]{1,4}\s*+\}(?:\s*\^\s*\{?-?[1-3]\}?)?"
_UNITS_BEHIND = re.compile(
    rf"(?P<number>.*[0-9}})i])\s*(?:{_UNIT}(?:\s*(?:\\cdot|/|\\,|~)?\s*{_UNIT})+"
    r"|(?:\\[,;:! ]|~|\s)+[kcm]?m\s*\^\s*\{?[23]\}?|(?:平方|立方)?单位)\s*\$?"
)
# `287 eggs`, `5 m`
_COUNTED = re.compile(rf"{_NUMBER}(?:{UNIT_WORDS_IN_TEXT}|(?P<noun>[a-z]{{4,}}))\.?")
_NAMED = re.compile(r"(?P<name>[^=<>]+)=(?P<value>[^=]+)")
_DEGREES = re.compile(r"(?P<number>-?[0-9.]+)\^\\circ")
_SEPARATOR = re.compile(r"[,;]|\\text\{ ?and ?\}")
_TUPLE = re.compile(r"\(([^()\[\]{}]+(?:\{[^{}]*\}[^()\[\]{}]*)*)\)")

_APPROXIMATED = re.compile(r"\$?([^≈$]*?)(?:\\approx(?![A-Za-z])|≈)\s*([^≈$]+?)\s*\$?")
_VALUE_NAME = re.compile(r"[A-Za-z]{1,3}(?:_\w+)?|[A-Z][a-z]*\([^()]*\)")
_PERCENTAGE = re.compile(r"\$?([^%$=<>]*[0-9}]) ?\\?%\$?")


@lru_cache(maxsize=1 << 13)
@total(lambda gold, answer: False)
def within_tolerance(gold: str, answer: str) -> bool:
    r"""Return whether an answer agrees with a gold answer, generously.

    Beyond equal canonical texts, values that round to one another, a number with and without its label or unit, one
    quantity in several units, and other forms of one formula, list or sentence agree; docs/outcomes.md has the table of
    all of them, and of what does not agree. The functions below and the modules beside this one are its rows.

    Texts of more than `MAX_ANSWER_CHARS` agree with nothing.

    Args:
        gold: the gold answer.
        answer: the answer of a response.
    """
    if _INTEGER.fullmatch(gold) and _INTEGER.fullmatch(answer):
        return False  # equal ones have one key
    if max(len(gold), len(answer)) > MAX_ANSWER_CHARS:
        return False  # as keys leave them unread: the time of some patterns grows with the square of the length
    if "approx" not in gold and "." in gold and (stated := _APPROXIMATED.fullmatch(answer)):
        return _is_rounded(*stated.groups()) and (
            canonical_text(gold) == canonical_text(stated[2]) != "" or within_tolerance(gold, stated[2])
        )
    given = [gold.strip(), answer.strip()]
    spelled = [*map(respelled, given)]
    gold, answer = map(_without_units, spelled)
    gold_plain, answer_plain = plain_text(gold), plain_text(answer)

    def is_read_alike() -> bool:  # only one side drops its label or unit
        return canonical_text(gold) in _readings(answer_plain) | said(answer) or canonical_text(answer) in _readings(
            gold_plain
        ) | said(gold)

    return (
        ([gold, answer] != given and canonical_text(gold) == canonical_text(answer) != "")
        or _rounds_to(answer_plain, gold_plain)
        or (is_read_alike() and not quantities_differ(*spelled))
        or any(reading.startswith("eq:") for reading in _readings(gold_plain) & _readings(answer_plain))
        or (canonical_text(gold) in _numbers_said(answer_plain) and not _has_unit(gold_plain))
        or _same_function(gold_plain, answer_plain)
        or _same_quantity(*spelled)
        or _same_sequence(gold_plain, answer_plain)
        or same_words(gold, answer)
        or same_chemistry(gold, answer)
        or same_pieces(gold_plain, answer_plain)
        or _same_formulas(gold_plain, answer_plain)
    )


def _same_formulas(gold: str, answer: str) -> bool:
    if any(canonical_text(text).startswith(Tag.WORDS) for text in (gold, answer)):
        return False  # the letters of words do not commute
    return (
        same_families(gold, answer) or same_solutions(gold, answer) or same_values(_value_of(gold), _value_of(answer))
    )


def _has_unit(plain: str) -> bool:
    try:
        return bool(units_in(tokenize(plain)))
    except Incomparable:
        return False


def _without_units(answer: str) -> str:
    """Return a number without a product of units behind it, which keys leave unread."""
    units = _UNITS_BEHIND.fullmatch(answer)
    is_number = units is not None and canonical_text(units["number"]).startswith(("q:", "r:"))
    return units["number"] if units is not None and is_number else answer


def _numbers_said(plain: str) -> set[str]:
    """Return the canonical texts of the number that an answer says with a noun, or as the value of an expression."""
    found = set()
    if (counted := _COUNTED.fullmatch(plain)) and _is_noun(counted["noun"]):
        found.add(canonical_text(counted["number"]))
    if (named := _NAMED.fullmatch(plain)) and real_number(canonical_text(named["value"])) is not None:
        with suppress(Incomparable):
            names = {token.text for token in tokenize(named["name"]) if token.kind == "name"}
            if len(names) > 1:
                found.add(canonical_text(named["value"]))
    return found


def _same_sequence(gold: str, answer: str) -> bool:
    """Whether one of two texts puts brackets around the list of the other, which no interval would have."""
    for bare, text in ((gold, answer), (answer, gold)):
        if inside := _TUPLE.fullmatch(text):
            items, others = ([canonical_text(one) for one in re.split("[,;]", each)] for each in (bare, inside[1]))
            low, high = real_number(items[0]), real_number(items[-1])
            is_interval = len(items) == 2 and (low is None or high is None or low < high)
            return items == others and len(items) > 1 and not is_interval
    return False


def _is_noun(word: str | None) -> bool:
    return word is None or (is_word(word) and QUALIFIER.search(word) is None)


def _same_function(gold: str, answer: str) -> bool:
    """Whether two texts define the same function up to the variable's name."""
    values = []
    for text in (gold, answer):
        if function := _FUNCTION.fullmatch(text):
            variable = rf"(?<![A-Za-z\\]){function['variable']}(?![A-Za-z])"
            if function["variable"] == "x" or not re.search(r"(?<![A-Za-z\\])x(?![A-Za-z])", function["value"]):
                values.append(canonical_text(re.sub(variable, "x", function["value"])))
    return len(values) == 2 and values[0] == values[1]


@lru_cache(maxsize=1 << 13)  # the gold answer of many responses
def _readings(plain: str) -> set[str]:
    """Return the canonical texts that a text stands for without its labels or unit, or by another convention."""
    readings: set[str] = set()
    if labelled := _TUPLE_LABEL.fullmatch(plain):
        readings.add(canonical_text(labelled["values"]))
    labels = [_LABEL.fullmatch(part.strip()) for part in _SEPARATOR.split(plain)]
    values = [label["value"] for label in labels if label is not None]
    if len(values) == len(labels):
        readings.add(canonical_text(", ".join(values)))
    if len(labels) == 1 and labels[0] is not None and canonical_text(values[0]).startswith("f:"):
        readings.add(canonical_text(f"{plain.partition('=')[0]}-({values[0]})=0"))
    if (number := _WITH_UNIT.fullmatch(plain)) and not QUALIFIER.search(number["unit"].casefold()):
        readings.add(canonical_text(number["number"]))
    if degrees := _DEGREES.fullmatch(values[0] if len(values) == len(labels) == 1 else plain):
        readings.add(canonical_text(rf"{degrees['number']} \cdot \pi / 180"))
    if ratio := _RATIO_OR_TIME.fullmatch(plain):
        readings.add(canonical_text(f"{ratio[1]}/{ratio[2]}"))
    if comma := _DECIMAL_COMMA.fullmatch(plain):
        readings.add(canonical_text(f"{comma[1]}.{comma[2]}"))
    return readings - {""}


def _value_of(plain: str) -> str:
    """Return what stands behind a label: `x^2` of `y = x^2`."""
    label = _LABEL.fullmatch(plain)
    return plain if label is None else label["value"]


def _same_quantity(gold: str, answer: str) -> bool:
    """Whether two quantities in known units are equal, or a number and a percentage."""
    for text, other in ((gold, answer), (answer, gold)):
        percentage = _PERCENTAGE.fullmatch(text)
        if percentage is not None and _PERCENTAGE.fullmatch(other) is None:
            return canonical_text(f"({percentage[1]})/100") == canonical_text(other)
    one = quantity(gold)
    return one is not None and one == quantity(answer)


def _is_rounded(exact: str, stated: str) -> bool:
    """Whether a number may be rounded from what stands before it: a name, an angle, or a number that rounds to it."""
    value = real_number(canonical_text(exact))
    if value is None or "circ" in stated or "°" in stated:
        return value is not None or _VALUE_NAME.fullmatch(exact.strip()) is not None
    return canonical_text(exact) == canonical_text(stated) or _rounds_to(plain_text(exact), plain_text(stated))


def _rounds_to(answer: str, gold: str) -> bool:
    """Whether an answer is a number that rounds to a decimal gold answer, which has to have enough digits.

    Both may have a unit, the same one if both have.
    """
    decimal = _MEASURED.fullmatch(unwrap_text(gold) if gold.startswith("\\text") else gold)
    if decimal is None or "." not in decimal["digits"]:
        return False
    digits = decimal["digits"].lstrip("-0.").replace(".", "")
    measured = _MEASURED.fullmatch(answer)
    written = [one["unit"] for one in (decimal, measured) if one is not None and one["unit"].strip()]
    units = {known_unit(_JOINTS.sub("", one)) or (_TEMPERATURE.fullmatch(one) and one) for one in written}
    value = real_number(canonical_text(answer if measured is None else answer[: measured.start("unit")]))
    # A unit on one side only must be one: a lone letter outside of text is a variable.
    is_clear = len(written) != 1 or "\\text" in written[0] or len(_JOINTS.sub("", written[0])) > 1
    if len(digits) < MIN_DIGITS or len(units) > 1 or None in units or not is_clear or value is None:
        return False
    if any(_SPACED.search(one) for one in written) or QUALIFIER.search(answer):
        return False
    scale = Fraction(10) ** int(decimal["e"] or decimal["power"] or 0)
    places = len(decimal["digits"].partition(".")[2])
    return bool(abs(value - Fraction(decimal["digits"]) * scale) * 2 * 10**places <= scale)
