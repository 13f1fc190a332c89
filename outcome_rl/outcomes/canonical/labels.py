r"""Names of values: the left side of `x = 5`, `f(x) = x + 1` or `\text{Price} = 12`."""

import re

from outcome_rl.outcomes.canonical.lexer import Incomparable, NotUnderstood, Tokens, closing, split, top_level, trimmed
from outcome_rl.outcomes.canonical.names import NAMES
from outcome_rl.outcomes.canonical.parser import parse_expression
from outcome_rl.outcomes.canonical.trees import Apply, Call, Constant, Name, Tree

EQUAL = "="
_DENIES = re.compile(
    r"\b(?:no(?!\.)|not|never|neither|nor|except|excluding|(?:minus|about|nearly|almost)[A-Z]?)\b", re.IGNORECASE
)

_ACCENTS = frozenset(NAMES["accent"])
# Words before a name that say nothing of its value.
_NEUTRAL = re.compile(r"(?:(?:only|the|solutions?|answers?|is|are|so|thus|hence|then)[: ]*)+", re.IGNORECASE)


def is_labelled(item: Tokens) -> bool:
    at = next((i for i in top_level(item) if item[i].text == EQUAL), None)
    return at is not None and label_of(item[:at]) is not None


def label_of(tokens: Tokens) -> str | None:
    """Return the name left of `=`: `x`, `x_1`, `f(x)`, `AB/CD`, `(x, y)`, `\\text{Price}`; else None."""
    tokens = trimmed(tokens)
    texts = [token.text for token in tokens]
    if texts[:1] == ["("] and closing(tokens, 0) == len(tokens) - 1:
        parts = [_single_label(part) for part in split(tokens[1:-1], (",",))]
        return f"({','.join(part or '' for part in parts)})" if len(parts) > 1 and all(parts) else None
    return _single_label(tokens)


def _single_label(tokens: Tokens) -> str | None:
    accents = [token.text for token in tokens if token.text in _ACCENTS]
    if accents:
        named = _single_label([token for token in tokens if token.text not in (*_ACCENTS, "{", "}")])
        return named and "".join(accents) + named
    texts = [token.text for token in tokens]
    kinds = {token.kind for token in tokens if token.text not in ("(", ",", ")")}
    if kinds & {"text", "word"} and kinds <= {"text", "word", "name"}:  # `\text{Domain of } f(x)`
        if len(tokens) > 1 and tokens[-1].kind == "name" and tokens[-2].kind != "name":  # `\text{max at } x`
            return texts[-1] if _NEUTRAL.fullmatch(" ".join(texts[:-1])) else None
        return None if any(map(_DENIES.search, texts)) else "".join(texts)
    try:
        tree = parse_expression(tokens)
    except (NotUnderstood, Incomparable):
        return None
    if isinstance(tree, Apply) and not any(isinstance(part, Call) and part.name != "*" for part in tree.parts):
        return "".join(texts)  # `f^{-1}(x)`
    return _name(tree)


def place_of_label(label: str) -> tuple[bool, str]:
    """Return what sorts the labels of a tuple: `r` comes before `\\theta`."""
    return label.startswith("\\"), label


def holds_label(label: str, sides: list[Tokens]) -> bool:
    """Whether what is labelled holds the label, as in `x = 2x - 4` and `a_n = a_{n-1} + 2`."""
    parts = label[1:-1].split(",") if label.startswith("(") else [label]
    bases = {part.partition("_")[0].partition("(")[0].rstrip("'") for part in parts}
    return any(token.kind in ("name", "command") and token.text in bases for side in sides for token in side)


def _name(tree: Tree) -> str | None:
    """Return the name of a variable, of a segment, `AB`, or of a quotient of segments; `a/b = 2` is an equation."""
    match tree:
        case Name(name) | Constant("i" | "e" as name):
            return name
        case Call("*" | "/" as sign, parts):
            names = [_name(part) or "" for part in parts]
            return sign.replace("*", "").join(names) if all(name[:1].isupper() for name in names) else None
    return None
