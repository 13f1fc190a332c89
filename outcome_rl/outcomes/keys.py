"""Canonical texts and 64-bit keys of answers.

The canonical text depends only on the answer. The first of these rules that applies gives it: a time, a
date, a number in another base (`notations`); mathematics that the grammar reads (`forms`); words.
Equality of canonical texts is therefore a true equivalence, the same on every machine; the hash of the text is the
outcome key. No rule calls `eval`, a computer algebra system or a clock: each is bounded by counts of characters,
tokens, digits and operations.
"""

import re
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b

from outcome_rl.outcomes.canonical.forms import mathematical_form
from outcome_rl.outcomes.canonical.latex import plain_latex, unwrap_text
from outcome_rl.outcomes.canonical.lexer import Incomparable, NotUnderstood, Words
from outcome_rl.outcomes.canonical.notations import folded, in_notation, is_word
from outcome_rl.outcomes.canonical.spellings import respelled
from outcome_rl.outcomes.guard import total

NO_ANSWER = 0
"""The outcome key of a response without an answer."""

OUTCOME_RULE = "canonical/26"
"""Version of the mapping from answers to keys. Counts made under another version cannot be mixed with these."""

MAX_ANSWER_CHARS = 1000
"""Longer answers are hashed unread. The bound also keeps `int()` far below Python's limit of 4300 digits."""


class Tag(StrEnum):
    """First characters of the canonical texts that are made here or that need special treatment."""

    RATIONAL = "q:"
    WORDS = "t:"
    COLLECTION = "{"  # a set or list; `canonical.forms` makes it, and the tags of all other mathematics
    UNREAD = "s:"  # mathematics that no rule reads
    UNIQUE = "l:"  # equal to nothing but the same text


MAX_CANONICAL_CHARS = 240
"""Longer canonical texts are a tag and a digest."""


def outcome_key(text: str) -> int:
    """Return the signed 64-bit key of an answer; answers have equal keys exactly if their canonical texts are equal.

    The key is `blake2b(canonical_text(text), digest_size=8)`, the same in every process and on every machine.

    Args:
        text: the answer's text, such as that of `extract_answer`.

    Returns:
        A value in [-2**63, 2**63); `NO_ANSWER` = 0 only if the canonical text is empty (blank, `$$`).
    """
    canonical = canonical_text(text)
    return hash_key(canonical) if canonical else NO_ANSWER


def hash_key(text: str) -> int:
    """Return the stable signed 64-bit hash of a text, never 0."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) or 1


def equivalent(a: str, b: str) -> bool:
    """Return whether two answers have the same canonical text and so the same key: a true equivalence relation."""
    for name, answer in (("a", a), ("b", b)):
        if not isinstance(answer, str):
            raise TypeError(f"{name} must be a str; got {answer!r} ({type(answer).__name__}). Use str({name})")
    return canonical_text(a) == canonical_text(b)


def is_open(canonical: str) -> bool:
    """Return whether a canonical text is mathematics that no rule reads; only an equivalence check can compare it."""
    return canonical.startswith(Tag.UNREAD)


def canonical_text(answer: str) -> str:
    """Return the canonical text of an answer, with a tag that keeps its kinds apart.

    Args:
        answer: the answer's text, LaTeX or plain, with or without math delimiters.

    Returns:
        - `"q:n/d"` in lowest terms for a rational number;
        - another tag for other mathematics, such as `"r:"` for an irrational number, `"f:"` for a formula with
          variables, `"{"` for a set or list, `"("` for a tuple or open interval, `"eq:"` for an equation;
        - `"time:"`, `"date:"`, `"base:"` for those notations, `"t:"` for words, whatever their spacing and first
          capital;
        - `"s:"` and plain LaTeX for mathematics that no rule reads, and for words mixed with formulas;
        - `"l:"` and a digest for an answer that equals only itself, because it exceeds `MAX_ANSWER_CHARS` or another
          bound, is ambiguous, or fails in our own rules, which is logged;
        - `""` for an empty answer.

        Of more than `MAX_CANONICAL_CHARS` characters the tag and a digest are returned.

    Raises:
        TypeError: if `answer` is not a string.
    """
    if not isinstance(answer, str):
        raise TypeError(f"answer must be a str; got {type(answer).__name__}. Pass '' for a response without an answer.")
    answer = answer.strip()
    if len(answer) < 19 and answer.isascii() and answer.isdigit():  # most answers
        return f"{Tag.RATIONAL}{int(answer)}/1"
    if len(answer) > MAX_ANSWER_CHARS:
        return _unique(answer)
    return by_grammar(answer)


PLAIN_NUMBER = re.compile(
    r"(-?)(?:([0-9]{1,18}(?:\.[0-9]{1,18}|/[1-9][0-9]{0,17})?)|\\[dt]?frac\{([0-9]{1,18})\}\{([1-9][0-9]{0,17})\})"
)


@lru_cache(maxsize=1 << 15)
def real_number(canonical: str) -> Fraction | None:
    """Return the real number of a canonical text, None if it is of anything else."""
    kind, _, digits = canonical.partition(":")
    try:
        if kind == "q":
            return Fraction(digits)
        if kind == "r":
            mantissa, _, exponent = digits.partition("p")
            return int(mantissa, 16) * Fraction(2) ** int(exponent)
    except ValueError:  # a digest, or hexadecimal
        return None
    return None


@lru_cache(maxsize=1 << 13)
def plain_text(answer: str) -> str:
    """Return an answer as plain LaTeX, in the spelling that the grammar reads."""
    return plain_latex(respelled(answer))


def _unique(answer: str) -> str:
    return f"{Tag.UNIQUE}{digest(answer)}"


@lru_cache(maxsize=1 << 15)  # a run repeats most answers: 5 in 6 of 800 measured answers had been seen before
@total(_unique)
def by_grammar(answer: str) -> str:
    if number := PLAIN_NUMBER.fullmatch(answer):  # as the grammar would, sooner
        value = Fraction(number[1] + (number[2] or f"{number[3]}/{number[4]}"))
        return f"{Tag.RATIONAL}{value.numerator}/{value.denominator}"
    canonical = _canonical_of_plain(plain_text(answer))
    return canonical if len(canonical) <= MAX_CANONICAL_CHARS else _digested(canonical)


def _digested(canonical: str) -> str:
    """Return the tag of a canonical text and a digest, so that caches and checkpoints hold no huge texts."""
    tag = _TAG.match(canonical)
    return f"{tag[0] if tag else ''}#{digest(canonical)}"


_TAG = re.compile(r"[A-Za-z]*[:({\[]")


@lru_cache(maxsize=1 << 13)  # a third of the formulas differ from an earlier one only in spaces or braces
def _canonical_of_plain(plain: str) -> str:
    text = unwrap_text(plain)
    if not text:
        return ""
    if text.casefold() in _SAME:
        text = plain = _SAME[text.casefold()]
    if notation := in_notation(text):
        return notation
    if is_word(text) and _AND.search(plain) is None:  # `I and II` are two
        return f"{Tag.WORDS}{folded(text)}"
    try:
        return mathematical_form(plain)
    except Incomparable:
        return _unique(text)
    except NotUnderstood as why:
        if isinstance(why, Words) and not _HAS_MATHEMATICS.search(text):
            return f"{Tag.WORDS}{folded(text)}"
        return f"{Tag.UNREAD}{text.replace(', ', ',')}"


_SAME = dict.fromkeys(
    ("nosolution", "nosolutions", "thereisnosolution", "therearenosolutions", "emptyset", "theemptyset"), r"\emptyset"
)
_SAME |= dict.fromkeys(("allreals", "allrealnumbers", "everyrealnumber", "anyrealnumber"), r"\mathbb R")
_SAME |= {"infinity": r"\infty", "positiveinfinity": r"\infty", "negativeinfinity": r"-\infty", "-infinity": r"-\infty"}
_SAME |= {"dne": "doesnotexist", "infinitelymanysolutions": "infinitelymany", "infinite": "infinitelymany"}
_AND = re.compile(r"\\text\{ ?and ?\}")
_HAS_MATHEMATICS = re.compile(r"[0-9\\=<>^]")


def digest(text: str) -> str:
    """Return the stable hash of a text as 32 hexadecimal digits."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
