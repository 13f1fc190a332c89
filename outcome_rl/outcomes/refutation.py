r"""When math-verify may vote: what it drops without notice has to be the same in both texts.

math-verify drops words, dots and signs that it does not know (`n^2 \text{ if } n \text{ is even}` is `n^2` to it,
`\{1, 2, \ldots\}` is `\{1, 2\}`), and takes one number of several. So words, names, and commands and signs of no known
meaning have to be the same in both texts. A sentence is never voted on: it may state its value behind a link such as
`is`, and then no word since the number before may change the value.
"""

import re

from outcome_rl.outcomes.canonical.labels import label_of
from outcome_rl.outcomes.canonical.lexer import Tokens, TooLarge, names_of, positions, tokenize, words_in
from outcome_rl.outcomes.canonical.parser import FACTOR_COMMANDS
from outcome_rl.outcomes.guard import total
from outcome_rl.outcomes.keys import canonical_text, plain_text
from outcome_rl.outcomes.tolerance import QUALIFIER, within_tolerance

_TEXT = re.compile(r"\\(?:text[a-z]*|mathrm|mbox|operatorname) *\{([^{}]*)\}")
_MATRIX = re.compile(r"\\(?:begin|end) *\{(?:[a-z]*matrix|array)\}(?: *\{[lcr]+\})?")
_COMMAND = re.compile(r"\\[A-Za-z]+|\\.")
_WORD = re.compile(r"(?!d[a-z]\b)[A-Za-z]{2,}|[\u3040-\u9fff\uac00-\ud7a3]+")
_ARITHMETIC = frozenset("+-*/^_=()[]{},.;:!|&%$ 。") | {r"\{", r"\}", r"\\"}
_EVALUATED = frozenset((r"\int", r"\iint", r"\sum", r"\prod", r"\lim"))
"""What math-verify evaluates; its variable is bound."""

_KNOWN = _EVALUATED | {r"\to", r"\limits", r"\infty", r"\approx", r"\circ", r"\begin", r"\end"}
_LINK = re.compile(
    r"[=:：]|\b(?:is|are|equals?(?: to)?|(?:come|amount|reduce|evaluate|simplifie)s? to|that|it's)\b|[是为為は]"
)
_NUMBER = re.compile(r"[0-9](?:[0-9,.]*[0-9])?")
_SEPARATOR = re.compile(r"[,;&]|\\q?quad(?![A-Za-z])|\\\\")
# math-verify differentiates, and to it other variables are constant: every `dv/dz` is 0.
_DERIVATIVE = re.compile(r"frac *\{ *(?:d|\\partial)(?![a-z]{3})[^{}]*\} *\{ *(?:d|\\partial) *\\?[A-Za-z]")
_DOTS = re.compile(r"\.\.\.|…|\\[lc]?dots(?![A-Za-z])")


@total(lambda a, b: True)
def refuted(a: str, b: str) -> bool:
    """Return whether texts show that two answers differ, whatever math-verify says."""
    words, sides = (_words(_TEXT.sub("", a)), _words(_TEXT.sub("", b))), (_tokens(a), _tokens(b))
    if words[0] != words[1] or _differ(a, b, *sides):
        return True
    one, other = map(_last_side, sides)
    bound = not _EVALUATED.isdisjoint(token.text for token in (*one, *other))
    if _signs(one) != _signs(other) or (names_of(one) != names_of(other) and not bound):
        return True
    return words_in(one) != words_in(other)


@total(lambda a, b: False)
def states(a: str, b: str) -> bool:
    """Return whether one of two answers is a sentence that states the other."""
    words = _words(_TEXT.sub("", a)), _words(_TEXT.sub("", b))
    if bool(words[0]) == bool(words[1]) or _differ(a, b, _tokens(a), _tokens(b)):
        return False
    return _leads_to(a, b) if words[0] else _leads_to(b, a)


def _differ(a: str, b: str, of_a: Tokens, of_b: Tokens) -> bool:
    """Whether only one of two texts has dots, words of LaTeX or a derivative, or is an equation."""
    if (_DOTS.search(a) is None) != (_DOTS.search(b) is None) or _in_text(a) != _in_text(b):
        return True
    return bool(_DERIVATIVE.search(a) or _DERIVATIVE.search(b)) or _is_equation(of_a) != _is_equation(of_b)


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(_COMMAND.sub(" ", _MATRIX.sub(" ", text)))}


def _in_text(text: str) -> set[str]:
    return _words(" ".join(_TEXT.findall(text)))


def _tokens(text: str) -> Tokens:
    try:
        return tokenize(plain_text(text))
    except TooLarge:
        return []


def _last_side(tokens: Tokens) -> Tokens:
    return tokens[max(positions(tokens, ("=",)), default=-1) + 1 :]


def _is_equation(tokens: Tokens) -> bool:
    """Whether a formula with variables stands left of `=`, and no label: then the right side is not the answer."""
    left = tokens[: min(positions(tokens, ("=",)), default=0)]
    is_prose = any(token.kind == "word" for token in left)
    return not is_prose and bool(names_of(left)) and label_of(left) is None


def _signs(tokens: Tokens) -> set[str]:
    """Return the commands and signs that neither the grammar nor math-verify gives a meaning."""
    signs = {token.text for token in tokens if token.kind in ("symbol", "command")} - _ARITHMETIC - _KNOWN
    return {sign for sign in signs if sign.lstrip("\\") not in FACTOR_COMMANDS}


def _leads_to(sentence: str, value: str) -> bool:
    """Whether a sentence gives a value behind its last link, and no word since the number before changes it."""
    end = max((link.end() for link in _LINK.finditer(sentence)), default=0)
    start = max((number.end() for number in _NUMBER.finditer(sentence, 0, end)), default=0)
    if not end or QUALIFIER.search(_COMMAND.sub(" ", sentence[start:]).casefold()):
        return False
    if start and _SEPARATOR.search(sentence, start, end):  # `dogs = 35, cats = 52`
        return False
    stated = sentence[end:].strip(" .。")
    return canonical_text(stated) == canonical_text(value) or within_tolerance(value, stated)
