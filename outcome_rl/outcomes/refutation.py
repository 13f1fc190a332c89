r"""Refutation of an equality that math-verify claims, by what the two texts say and by their values.

math-verify drops words and dots (`n^2 \text{ if } n \text{ is even}` is `n^2` to it, `\{1, 2, \ldots\}` is `\{1, 2\}`),
takes one number of several (`35 \text{ adults and } 52 \text{ children}`), and may simplify wrongly. Where both texts
have a value once whole numbers are put for their variables, the values decide.
"""

import re
import unicodedata
from collections.abc import Mapping
from fractions import Fraction

from outcome_rl.outcomes.canonical.latex import COUNTER, mended, plain_latex
from outcome_rl.outcomes.canonical.lexer import Tokens, TooLarge, names_of, tokenize, words_in
from outcome_rl.outcomes.guard import total
from outcome_rl.outcomes.keys import canonical_text, real_number

QUALIFIER = re.compile(
    r"\b(?:if|when|unless|except|without|at +(?:least|most)|more|less|fewer|greater|higher|lower"
    r"|over|under|above|below|up +to|between|about|almost|nearly|dozens?|half|halves|thirds?|quarters?|fourths?"
    r"|(?:fif|six|seven|eigh|nin|ten|hundred|thousand)ths?|twice|double|triple|squared|cubed|minus|negative|mod|base"
    r"|remainder|ago|before|factorial|choose|plus|nor|gross|lakhs?|crores?|myriads?|[bm]l?n|trn|tn|per +mille|ppm|bps"
    r"|basis +points?|neg|upwards?|onwards?|or +so|and +up|binary|hex|hexadecimal|octal|inverse|reciprocal|conjugate"
    r"|excluding|incorrect|impossible|undefined|overdrawn|deficit|inclusive|exclusive|transposed?|complement"
    r"|(?:thousand|[mbtr]+illion)s?|permutations?|cyclic|cyclically|tens|hundreds|grand|zeros|fold"
    # `not 5`; in `not 5, it is 6` a clause with another number follows.
    r"|not(?![^0-9]*[0-9][0-9.,]*[^0-9]*\b(?:but|is|it|equals)\b[^0-9]*[0-9]))\b"
)
"""Words that restrict, compare, scale or change the number beside them: `5 dozen` and `5 or more` are not 5."""

# Parts that math-verify drops although they distinguish answers. Texts that differ in one of them are not equal.
_SAID = tuple(
    re.compile(pattern)
    for pattern in (
        QUALIFIER,
        r"^(?!.*\\lim).*?(\\(?:to|rightarrow|mapsto)(?![A-Za-z])|→)",
        r"\\partial *\{? *[A-Za-z]",
        r"(?<![\^0-9])[0-9]+_\{?\(?([0-9A-Za-z]+)",  # a base
        r"(?<![{0-9])~|\\(?:neg|lnot|not|sim|nmid)(?![A-Za-z])|¬",
        r"\\nabla *\\[a-z]+",
        r"[0-9] ?(?:['\"′″]|\^ *\{? *\\prime)+",  # feet and inches
        r"[)\]}]\s*'(?![A-Za-z])",
        r"[A-Za-z}]\[[^\]]*\]",  # `E[X^2]`
        r"\\(?:land|wedge)(?![A-Za-z])|∧",
        r"\\(?:lor|vee)(?![A-Za-z])|∨",
        r"\\(?:angle|triangle) *\{? *([A-Z]{2,})",
        r"\\mathbb *\{? *[A-Z]|[ℕℤℚℝℂ]",
        r"\^ *\{? *\(",  # the order of a derivative
        r"\b0[xXbBoO][0-9A-Fa-f]+",
        r"\.[0-9]*\([0-9]+\)|\.[0-9]*\\(?:dot|overline)",
        r"[0-9] ?[–—] ?[0-9]",
        r"([^\s=≡\\]+)\s*(?:\\equiv(?![A-Za-z])|≡)",
        r"\\(?:pm|mp)(?![A-Za-z])|[±∓]",
        r"[0-9]\s*(?:\\text\s*\{\s*)?(?:st|nd|rd|th)\s+[a-z]+",  # `7th root`
        r"\\(?:forall|exists)(?![A-Za-z])|[∀∃]",
        r"(?:\\in(?![A-Za-z])|∈) *[A-Za-z]",
    )
)
_WORD = re.compile(r"(?<![\\A-Za-z])(?!d[a-z]\b)[A-Za-z]{2,}")
_FORMULA = re.compile(r"\\(?!text|mathrm|[ ,;])|[+=^]")
_CHUNK = re.compile(r"[0-9]+|\\?[A-Za-z]+")
_NUMBER = re.compile(r"[0-9]+")
_CYCLE = re.compile(r"\(([0-9]+(?:(?:\\[ ,;:!]|~|\s)+[0-9]+)+)\)")
_JOINING = frozenset(("and", "or", "the", "an", "of", "per", "in", "for", "to"))  # they say nothing of a number
_JOINT = re.compile(r"\b(?:and|or)\b")
_ORDER = r"[<>≤≥≠∀∃]|\\(?:forall|exists|leq?|geq?|leqslant|geqslant|lt|gt|neq?)(?![A-Za-z])"
# A relation, two choices with their values, a sum of quantities: math-verify takes a number in it.
_STATEMENT = re.compile(rf"{_ORDER}|\b[A-J]\).*\b[A-J]\)|\\(?:text|mathrm)\s*\{{[^{{}}]*\}}\s*[-+*/]", re.DOTALL)
# Between the quantities of a text: words, and signs that separate. A comma within a number does not.
_BETWEEN_QUANTITIES = re.compile(
    r"(?<![\\A-Za-z])[A-Za-z]{2,}|(?<![0-9]),|,(?![0-9])|;|\\q?quad(?![A-Za-z])|\\\\|\\?&|:"
)
# Sentences lead to their number by way of others.
_SENTENCE = re.compile(
    r"\\boxed|[.!?]\s+[A-Z]|\b(?:answers?|are|becomes?|equals?|gets?|hence|is|it|since|so|therefore|thus|was|which)\b"
)
# Commands that math-verify evaluates, or that change no value. It drops others, and takes the number beside them.
_UNDERSTOOD = (
    r"alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta|vartheta|iota|kappa|lambda|mu|nu|xi|"
    r"pi|rho|sigma|tau|upsilon|phi|varphi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Phi|"
    r"Psi|Omega|angle|circ|degree|infty|frac|dfrac|tfrac|cfrac|sqrt|binom|dbinom|tbinom|choose|cdot|"
    r"times|div|sum|prod|int|iint|iiint|lim|limits|nolimits|to|rightarrow|sin|cos|tan|cot|sec|csc|sinh|cosh|"
    r"tanh|arcsin|arccos|arctan|arcsec|arccsc|arccot|ln|log|lg|exp|mathrm|text|textbf|textit|textrm|"
    r"textnormal|mathbf|mathit|mathsf|mathtt|boldsymbol|bm|mbox|hbox|fbox|boxed|rm|bf|it|displaystyle|"
    r"textstyle|scriptstyle|left|right|middle|big|Big|bigg|Bigg|bigl|bigr|Bigl|Bigr|lvert|rvert|vert|"
    r"lfloor|rfloor|lceil|rceil|lbrace|rbrace|lbrack|rbrack|quad|qquad|space|enspace|thinspace|hspace|"
    r"begin|end|approx|therefore|implies|Rightarrow|Longrightarrow|euro|pounds|yen|textdollar|"
    r"textsterling|texteuro"
)
_UNKNOWN = re.compile(rf"\\(?!(?:{_UNDERSTOOD})(?![A-Za-z]))[A-Za-z]+")
# Operators that it drops from a formula, too.
_DROPPED = re.compile(r"\\(?:max|min|sup|inf|det|dim|deg|ker|arg|Re|Im|gcd|sgn|oint)(?![A-Za-z])")
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mbox)\s*\{([^{}]*)\}")
_TOLD = re.compile(r"[0-9]+|[<>]")
_MAX_NUMBER_CHARS = 12
_CHINESE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
_UNIT_AT_END = re.compile(rf"(?<=[0-9]) ?{COUNTER}$")
_DOTS = re.compile(r"\.\.\.|…|\\[lc]?dots(?![A-Za-z])")
_NUMBERS = ((4, 3, 5, 7, 8, 9), (6, 2, 3, 5, 9, 11), (-4, -7, 5, -3, 2, -6))
_CONSTANTS = ("e", "i", "d")
_NUMERIC = ("q:", "r:", "c:")  # beginnings of the canonical texts of numbers


@total(lambda a, b: True)
def refuted(a: str, b: str) -> bool:
    """Return whether texts or values show that two answers differ: dots or a condition in only one, or other values.

    Args:
        a, b: answers that math-verify calls equal.
    """
    if (_DOTS.search(a) is None) != (_DOTS.search(b) is None):
        return True
    if (cycles := [_CYCLE.fullmatch(text.strip("$ ")) for text in (a, b)]) and all(cycles):
        return _turned(cycles[0][1]) != _turned(cycles[1][1])  # type: ignore[index]
    if any(set(said.findall(a)) != set(said.findall(b)) for said in _SAID) or _chinese(a) != _chinese(b):
        return True
    if _unknown_signs(a) != _unknown_signs(b) or _is_statement(a, b) or _is_statement(b, a):
        return True
    if set(_DROPPED.findall(_sides(a)[-1])) != set(_DROPPED.findall(_sides(b)[-1])):
        return True
    joints = set(_JOINT.findall(a)), set(_JOINT.findall(b))
    if all(joints) and joints[0].isdisjoint(joints[1]):
        return True
    if _say_otherwise(a, b):
        return True
    chains = _chain(a), _chain(b)
    if _is_rearranged(a, b) or (all(chains) and chains[0] != chains[1]):
        return True
    tokens_a, tokens_b = _tokens(a), _tokens(b)
    words = words_in(tokens_a), words_in(tokens_b)
    if all(words) and words[0] != words[1]:
        return True
    names = sorted((names_of(tokens_a) | names_of(tokens_b)) - {*_CONSTANTS})
    if len(names) > len(_NUMBERS[0]):
        return False
    for numbers in _NUMBERS:
        at = dict(zip(names, numbers, strict=False))
        values = _value(tokens_a, at), _value(tokens_b, at)
        if None not in values and values[0] != values[1]:
            return True
    return False


def _turned(cycle: str) -> list[str]:
    """Return the numbers of a cycle from the least one on: `(2 3 1)` is `(1 2 3)`."""
    numbers = _NUMBER.findall(cycle)
    first = numbers.index(min(numbers, key=int))
    return numbers[first:] + numbers[:first]


def _say_otherwise(a: str, b: str) -> bool:
    """Return whether each of two texts of a number has a word that the other lacks, or one has more numbers.

    math-verify reads no words: `20% increase` and `20% decrease` are one number to it.
    """
    if any(_FORMULA.search(_TEXT.sub("", text).replace(r"\%", "").replace(r"\$", "")) for text in (a, b)):
        texts = [" ".join(_TEXT.findall(text)) for text in (a, b)]  # `\frac12 \text{ increase}`
        return not _SENTENCE.search(" ".join(texts)) and _have_other_words(*texts)
    if _SENTENCE.search(f"{a} {b}"):
        return False
    numbers = [sorted(_NUMBER.findall(text)) for text in (a, b)]
    have_words = all(map(_words, (a, b)))
    return _have_other_words(a, b) or (have_words and all(numbers) and numbers[0] != numbers[1])


def _have_other_words(a: str, b: str) -> bool:
    """Return whether each of two texts has a word that the other lacks."""
    return bool(_words(a) - _words(b) and _words(b) - _words(a))


def _words(text: str) -> set[str]:
    return {word.casefold().removesuffix("s") for word in _WORD.findall(text)} - _JOINING


def _is_rearranged(a: str, b: str) -> bool:
    """Return whether two texts with words say the same in another order: `2 to 3` and `3 to 2`."""
    chunks = _CHUNK.findall(a), _CHUNK.findall(b)
    is_prose = _WORD.search(a) is not None and _FORMULA.search(a) is None
    return is_prose and chunks[0] != chunks[1] and sorted(chunks[0]) == sorted(chunks[1])


def _sides(text: str) -> list[str]:
    """Return the sides of a chain of equations; an `=` in braces is a bound."""
    depth, sides = 0, [""]
    for sign in text:
        depth += (sign == "{") - (sign == "}")
        if sign == "=" and depth == 0:
            sides.append("")
        else:
            sides[-1] += sign
    return sides


def _chain(text: str) -> set[str]:
    """Return the sides of a chain of equations, as canonical texts.

    Of its numbers only the last counts: those before it say how it was computed.
    """
    *others, last = map(canonical_text, _sides(text))
    return {last, *(side for side in others if not side.startswith(_NUMERIC))} if len(others) > 1 else set()


def _is_statement(a: str, b: str) -> bool:
    """Return whether the second text says more about a value than the first one, or states further values."""
    value = canonical_text(a)
    if not value.startswith(_NUMERIC):
        formula, words = set(_TOLD.findall(_TEXT.sub("", b))), _TOLD.search(" ".join(_TEXT.findall(b)))
        return words is not None and formula >= set(_TOLD.findall(a)) != set()
    return (
        _STATEMENT.search(b) is not None
        or _UNKNOWN.search(_sides(b)[-1]) is not None  # to the left it is part of a name
        or not all(_restates(part, value) for part in _quantities(b))
    )


def _quantities(text: str) -> list[str]:
    """Return the parts of a list that are numbers: of `3 cats, 2 dogs` both."""
    text = _TEXT.sub(r" \1 ", text)
    if _SENTENCE.search(text):
        return []
    sides = (part.rpartition("=")[2].strip(" .$()") for part in _BETWEEN_QUANTITIES.split(text))
    return [side for side in sides if side and side[0] not in "^_" and canonical_text(side).startswith(_NUMERIC)]


def _restates(part: str, value: str) -> bool:
    """Return whether a part of a text is the number with this canonical text, as it is, rounded or in percent."""
    if canonical_text(part) == value:
        return True
    number, given = real_number(value), real_number(canonical_text(part))
    if number is None or given is None:
        return False
    if "%" in part:
        return given == 100 * number
    decimals = len(part.partition(".")[2])
    return decimals > 0 and abs(given - number) <= Fraction(1, 2 * 10**decimals)


def _unknown_signs(text: str) -> set[str]:
    """Return the signs that our notation does not know: math-verify drops them."""
    if text.isascii():
        return set()
    plain = plain_latex(mended(text))
    return {sign for sign in plain if not sign.isascii() and (unicodedata.category(sign)[0] in "SM" or sign == "ℵ")}


def _chinese(text: str) -> str:
    """Return the Chinese or Japanese words of a number, without its unit: of `5以上`, not of a sentence."""
    if len(text.strip()) > _MAX_NUMBER_CHARS:
        return ""
    return "".join(_CHINESE.findall(_UNIT_AT_END.sub("", text.strip())))


def _tokens(text: str) -> Tokens:
    try:
        return tokenize(plain_latex(mended(text)))
    except TooLarge:
        return []


def _value(tokens: Tokens, numbers: Mapping[str, int]) -> str | None:
    """Return the canonical text of the number that an answer is for these values of its variables, if it is one."""
    text = ""
    for kind, token in tokens:
        if kind == "name" and token in numbers:
            text += f"({numbers[token]})"
        else:
            text += rf"\text{{{token}}}" if kind == "text" else f"{token} "
    canonical = canonical_text(text)
    return canonical if canonical.startswith(("q:", "r:")) else None
