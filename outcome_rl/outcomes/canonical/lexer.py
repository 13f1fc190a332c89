r"""Split plain LaTeX into tokens, and token lists at separators outside of their brackets."""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from outcome_rl.outcomes.canonical.names import NAMES
from outcome_rl.outcomes.canonical.units import COUNTER, UNIT_WORDS, readings_of

MAX_TOKENS = 400
MAX_DEPTH = 24


class NotUnderstood(ValueError):
    """The text is outside the grammar."""


class Words(NotUnderstood):
    """The text holds words, so it is prose and no formula."""


class Incomparable(ValueError):
    """The text is ambiguous or incomplete, so it equals only the same text."""


class TooLarge(Incomparable):
    """The text, or a value on the way to its key, exceeds a bound."""


class Token(NamedTuple):
    """`kind` is number, name, command, text, unit, word, space or symbol; `text` has no trailing space."""

    kind: str
    text: str


Tokens = Sequence[Token]

GREEK, FUNCTION_NAMES, UNREAD = NAMES["greek"], NAMES["function"], NAMES["unread"]  # no rule reads the last
CALLED = {name: name for name in ("floor", "ceil", "factorial", "binomial", "root", "abs")}
CALLED |= {"Abs": "abs", "ceiling": "ceil", "comb": "binomial"}
"""Functions whose arguments stand in brackets, by the names that computer algebra gives them."""

BARE = {"sqrt": r"\sqrt", "pi": r"\pi", "infinity": r"\infty", "inf": r"\infty", "oo": r"\infty"}
BARE |= {name: f"\\{name}" for name in [*FUNCTION_NAMES, *GREEK] if name != "Pi"}
BARE |= {f"a{name}": rf"\arc{name}" for name in ("sin", "cos", "tan")}
BARE |= {"and": "and", "or": "or"}
_COMMANDS = {letter: rf"\{unicodedata.name(letter).split()[-1].lower()}" for letter in "αβγδεζηθικμνξρστυφχψω"}
_COMMANDS |= {"λ": r"\lambda", "Ω": r"\Omega", "Σ": r"\Sigma"}
_COMMANDS |= {"<=": r"\leq", ">=": r"\geq", "≈": r"\approx"}

_TH = "(?:st|nd|rd|th)"
_TOKEN = re.compile(
    rf"(?P<unit>(?:(?<=[0-9}}])(?:{UNIT_WORDS})(?![A-Za-z]|\^?[0-9]?\()"
    rf"|(?<=[0-9}}]){COUNTER}(?![^,;]))(?:\^[23])?"
    rf"|(?<=[0-9])(?:(?<=1)st|(?<=2)nd|(?<=3)rd|th|\^(?:{_TH}|\{{{_TH}\}}|\{{?\\text\{{ ?{_TH} ?\}}\}}?))(?![A-Za-z]))"
    r"|\\text\{(?P<text>[^{}]*)\}"
    r"|\\(?P<command>[A-Za-z]+) ?"
    r"|(?P<escape>\\.)"
    r"|(?P<number>[0-9]*\.[0-9]*\\(?:overline|bar) ?(?:\{[0-9]+\}|[0-9])"
    r"|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3}(?![0-9A-Za-z.]))?)"
    rf"|(?<![A-Za-z])(?P<bare>{'|'.join(sorted(BARE, key=len, reverse=True))})(?![A-Za-z])"
    rf"|(?<![A-Za-z])(?P<called>{'|'.join(sorted((*CALLED, *UNREAD), key=len, reverse=True))})(?=\()"
    r"|(?P<word>[A-Za-z]{5,})"
    r"|(?P<letter>[A-Za-z])"
    r"|(?P<space> )"
    r"|(?P<relation><=|>=)"
    r"|(?P<symbol>.)",
    re.DOTALL,
)
_BEFORE_UNIT = re.compile(r"(?:[0-9})]|\\pi ?)\Z")
_TEXT = re.compile(r"\\text\{ ?([^{}\\]{1,30}?)\.? ?\}(\^-?[1-9](?![0-9])|\^\{-?[1-9]\})?")
_JOINT = re.compile(r"(?:/|\\cdot ?)?(?=\\text\{)")
_UNIT = re.compile(rf"(?:square |cubic )?units?|{UNIT_WORDS}|{COUNTER}")
_LETTER_IN_TEXT = re.compile(r"\(?([A-Za-z])\)?")  # a variable, or a choice: `\text{(B)}`
# All groups between bare commas are thousands, or none is: `54,108,12` is a list; `3 125/250` is a mixed number.
_THOUSANDS = re.compile(
    r"(?<!\^|_)(?<!_\{)(?:(?<![0-9],)[1-9][0-9]{0,2}(?:,[0-9]{3})+(?!,?[0-9])"
    r"|(?<![A-Za-z0-9.)}\]])[1-9][0-9]{0,2}(?: [0-9]{3})+(?![ ,]?[0-9/]))(?:\.[0-9]+)?"
)

# A number and a proper fraction, where a number begins: `1 1/2`, `1\\frac12`, `3\\frac{11}{12}`.
_MIXED = re.compile(r"([0-9]+)(?: ([0-9]+)/([0-9]+)|\\frac(?:\{([0-9]+)\}|([0-9]))(?:\{([0-9]+)\}|([0-9])))(?![0-9.])")
BEFORE_NUMBERS = frozenset((r"\pm", r"\mp", r"\times", r"\cdot", r"\div", r"\lfloor", r"\lceil"))

END = Token("end", "")
_SIGNS = {sign: Token("symbol", sign) for sign in "+-*/=()[]{},;|_'!"}  # of which no other token begins with one
_BRACKETS, _CLOSED_BRACKETS = ("(", "[", r"\{"), (")", "]", r"\}")
_OF_DIGITS = (r"\frac", r"\binom")  # the argument behind one is a group or a digit
OPENING = frozenset(("(", "[", "{", r"\{", r"\langle", r"\begin"))
CLOSING = frozenset((")", "]", "}", r"\}", r"\rangle", r"\end"))


def tokenize(plain: str) -> list[Token]:
    """Split plain LaTeX into tokens; `1,234` and `1 234` are numbers, but inside brackets a comma separates.

    Raises:
        TooLarge: more than `MAX_TOKENS`, or brackets deeper than `MAX_DEPTH`.
    """
    tokens: list[Token] = []
    position, depth, nesting = 0, 0, 0
    while position < len(plain):
        token, position = _token_at(plain, position, tokens, is_outside=depth == 0)
        depth += (token.text in _BRACKETS) - (token.text in _CLOSED_BRACKETS)
        nesting = max(nesting + (token.text in OPENING) - (token.text in CLOSING), 0)
        tokens.append(token)
        if len(tokens) > MAX_TOKENS:
            raise TooLarge(f"more than {MAX_TOKENS} tokens")
        if nesting > MAX_DEPTH:
            raise TooLarge(f"brackets nested deeper than {MAX_DEPTH}")
    return tokens


def _token_at(plain: str, at: int, before: Tokens, *, is_outside: bool) -> tuple[Token, int]:
    """Return the next token, and where it ends; `is_outside` of all brackets but braces."""
    if sign := _SIGNS.get(plain[at]):
        return sign, at + 1
    if plain[at].isdigit():
        if is_outside and (thousands := _THOUSANDS.match(plain, at)):
            return Token("number", re.sub("[ ,]", "", thousands[0])), thousands.end()
        if (mixed := _MIXED.match(plain, at)) and _begins_number(before):
            whole, top, bottom = filter(None, mixed.groups())
            if int(top) < int(bottom):
                return Token("number", f"{whole} {top}/{bottom}"), mixed.end()
    if plain[at] == "\\" and (end := _end_of_unit(plain, at)) > at:
        return Token("unit", plain[at:end]), end
    match = _TOKEN.match(plain, at)
    assert match is not None  # the last alternative takes any character
    token = _token(match)
    if token.kind == "number" and before and before[-1].text in _OF_DIGITS and token.text.isdigit():
        return Token("number", token.text[0]), at + 1  # `\frac12` is one half, as in TeX
    return token, match.end()


def _begins_number(tokens: Tokens) -> bool:
    """Whether a number behind these tokens may be a mixed one: no factor, power or denominator stands before it."""
    before = tokens[-1] if tokens else END
    is_start = before.kind in ("end", "symbol", "space") and before.text not in ("^", "_", "]", "/", ")")
    return is_start or before.text in BEFORE_NUMBERS


def _end_of_unit(plain: str, start: int) -> int:
    """Return where a unit in text ends that stands behind a quantity, `\\text{km}/\\text{h}^2`; `start` without one."""
    if not plain.startswith(r"\text{", start) or not _BEFORE_UNIT.search(plain[max(0, start - 4) : start]):
        return start
    unit, end, at = "", start, start
    while text := _TEXT.match(plain, at):
        unit += text[1] + (text[2] or "")
        if not (readings_of(unit) or _UNIT.fullmatch(unit)) or text[0] == r"\text{K}":  # `5\text{K}` is 5000, too
            break
        end = at = text.end()
        joint = _JOINT.match(plain, at)
        unit, at = (unit + ("/" if "/" in joint[0] else "·"), joint.end()) if joint else (unit, at)
    return end


def _token(match: re.Match[str]) -> Token:
    kind, text = match.lastgroup or "symbol", match[match.lastgroup or 0]
    if kind == "text":
        text = text.strip()
        if text in ("and", "or"):
            return Token("symbol", text)
        letter = _LETTER_IN_TEXT.fullmatch(text)
        return Token("text", text) if letter is None else Token("name", letter[1])
    if kind in ("command", "called"):
        return Token("command", f"\\{text}")
    if kind == "bare":
        text = BARE[text]
        return Token("command" if text[0] == "\\" else "symbol", text)
    if text in _COMMANDS:
        return Token("command", _COMMANDS[text])
    return Token({"letter": "name", "escape": "symbol"}.get(kind, kind), text)


def top_level(tokens: Tokens) -> Iterator[int]:
    """Return the positions outside of all brackets."""
    depth = 0
    for i, token in enumerate(tokens):
        depth -= token.text in CLOSING
        if depth == 0 and token.text not in CLOSING and token.text not in OPENING:
            yield i
        depth += token.text in OPENING


def positions(tokens: Tokens, texts: Collection[str]) -> list[int]:
    """Return the positions of signs outside of all brackets."""
    if {token.text for token in tokens}.isdisjoint(texts):
        return []
    return [i for i in top_level(tokens) if tokens[i].text in texts]


def split(tokens: Tokens, separators: Collection[str]) -> Iterator[Tokens]:
    start = 0
    for i in positions(tokens, separators):
        yield trimmed(tokens[start:i])
        start = i + 1
    yield trimmed(tokens[start:])


def trimmed(tokens: Tokens) -> Tokens:
    """Return the tokens without spaces before them; plain LaTeX keeps none behind, only those before digits."""
    return tokens[next((i for i, token in enumerate(tokens) if token.kind != "space"), len(tokens)) :]


def closing(tokens: Tokens, opening: int) -> int:
    """Return the position of the bracket that closes the one at `opening`; `[0, 1)` closes too."""
    depth = 0
    for i in range(opening, len(tokens)):
        depth += (tokens[i].text in OPENING) - (tokens[i].text in CLOSING)
        if depth <= 0:
            return i
    return -1


_SIGNS_OF_UNITS = {r"\circ": "degree", "%": "percent"}
_NOT_IN_UNIT = re.compile(r"\\text|[^A-Za-z/^0-9\u3040-\u9fff]|(?<=ch)es(?![A-Za-z])|(?<=[a-z]{2})s(?![A-Za-z])")


def units_in(tokens: Tokens) -> set[str]:
    """Return the units of quantities, which a single quantity loses: `minute` of `5\\text{ minutes}`, `squarecm`."""
    units = {_NOT_IN_UNIT.sub("", token.text) for token in tokens if token.kind == "unit"}
    return units | {_SIGNS_OF_UNITS[token.text] for token in tokens if token.text in _SIGNS_OF_UNITS}


def names_of(tokens: Tokens) -> set[str]:
    return {token.text for token in tokens if token.kind == "name"}


_RUN = re.compile("[A-Za-z]{3,}")
_CONSONANTS = re.compile("[^aeiou]+|[a-c]+|[v-z]+")


def words_in(tokens: Tokens) -> list[str]:
    """Return runs of letters that may be a word and no product, whose anagrams would have one key: `tea` of `5 tea`.

    Products are mostly written in the order of the alphabet, or hold no vowel.
    """
    if sum(token.kind == "name" for token in tokens) < 3:
        return []
    ends = [*(token.text for token in tokens[1:]), ""]
    letters = "".join(
        ("," if end in ("^", "_", "'") else "") + (text if kind == "name" else ",")  # `kt e^{-t}`
        for (kind, text), end in zip(tokens, ends, strict=True)
    )
    runs = [run.lower() for run in _RUN.findall(letters) if not run.isupper()]
    return [run for run in runs if not _CONSONANTS.fullmatch(run) and list(run) != sorted(run)]
