r"""Chemical formulas and equations in several spellings: `\ce{H2O}`, `\mathrm{H_2O}`, `H₂O`."""

import re
import unicodedata
from functools import lru_cache

_NAMES = """
H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb Mo Tc
Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi
Po At Rn Fr Ra Ac Th Pa U Np Pu
"""
_ELEMENTS = frozenset(_NAMES.split())
_WRAPPED = re.compile(r"\\(?:ce|mathrm|text|rm)\s*(?=\{)|[$\s]|\\[,;:! ]")
_ARROW = re.compile(r"\\(?:long)?rightarrow|\\to(?![a-z])|→|⟶|-->|->|=>")
_CHARGE = re.compile(r"\^\{?([0-9]*[+-])\}?")
_LOWERED = re.compile(r"_\{?([0-9]+)\}?")
_STATE = re.compile(r"\((?:aq|s|l|g)\)")
_RAISED_CHARGE = re.compile("([⁰¹²³⁴⁵⁶⁷⁸⁹]*)([⁺⁻])")
_SPECIES = re.compile(r"[0-9]*(?:(?:[A-Z][a-z]?|[()])[0-9]*)+(?:!?[0-9]*[+-])?(?:" + _STATE.pattern + ")?")
_HYDRATE = re.compile(r"[0-9A-Za-z)}] +[0-9]")
_SYMBOL = re.compile("[A-Z][a-z]?")


def same_chemistry(gold: str, answer: str) -> bool:
    """Return whether two texts are one formula or equation; states count where both have them."""
    one = chemical(gold)
    other = None if one is None else chemical(answer)
    if one is None or other is None:
        return False
    bare = _STATE.sub("", one), _STATE.sub("", other)
    return one == other or (bare[0] == bare[1] and (one, other) != bare and (one == bare[0] or other == bare[1]))


@lru_cache(maxsize=1 << 13)  # the gold answer of many responses
def chemical(text: str) -> str | None:
    """Return a formula or an equation of elements in one spelling, with sorted sides; None for any other text."""
    text = _RAISED_CHARGE.sub(lambda charge: "^" + unicodedata.normalize("NFKC", charge[0]).replace("−", "-"), text)
    text = _ARROW.sub(">", "".join(_spelled(sign) for sign in text))
    if _HYDRATE.search(text):
        return None
    plain = _LOWERED.sub(r"\1", _CHARGE.sub(r"!\1", _WRAPPED.sub("", text)))
    plain = plain.replace("{", "").replace("}", "").rstrip(".")
    sides = [sorted(re.split(r"\+(?=[0-9]*[A-Z(])", side)) for side in re.split("[=>]", plain)]
    species = [one for side in sides for one in side]
    if len(sides) > 2 or not all(map(_SPECIES.fullmatch, species)):
        return None
    symbols = _SYMBOL.findall(plain)
    if not all(symbol in _ELEMENTS for symbol in symbols) or (len(symbols) == 1 and not re.search("[0-9!]", plain)):
        return None
    return (" > " if ">" in plain else " = ").join(" + ".join(side) for side in sides)


def _spelled(sign: str) -> str:
    """Return the digit that a lowered character stands for, with its mark."""
    is_lowered = unicodedata.decomposition(sign).startswith("<sub>")
    return f"_{unicodedata.normalize('NFKC', sign)}" if is_lowered else sign
