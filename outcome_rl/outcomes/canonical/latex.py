"""Remove the parts of a LaTeX answer that do not change its meaning, and list the units.

One pass over the tokens: delimiters, sizing and fonts go, spelling variants and Unicode signs become one command, and a
group of one token loses its braces, as TeX reads `\\frac{1}{2}` and `\\frac12`, `x^{2}` and `x^2` alike. Text groups
stay as `\\text{...}` until `unwrap_text`, because only there is a lone letter a unit: `5\\text{ m}` but not `5m`.
"""

import re

from outcome_rl.outcomes.canonical.names import NAMES, RENAMED

_TOKEN = re.compile(r"\\[A-Za-z]+\s*|\\!\s*|\\.|\s+|.", re.DOTALL)

_DROPPED = frozenset((*NAMES["currency"], *NAMES["dropped"]))
_DROPPED |= frozenset(rf"\{size}{side}" for size in ("big", "Big", "bigg", "Bigg") for side in ("", "l", "r", "m"))
_SPACE, _TEXT, _UNWRAPPED = (frozenset(NAMES[kind]) for kind in ("space", "text", "unwrapped"))
_ORDINARY = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+-=^_()[],/|<>!:;*")
_EXPANDED = dict.fromkeys(("°", r"\degree", r"\degrees"), ("^", r"\circ"))
_EXPANDED |= {sign: (r"\mathbb", letter) for letter, sign in zip("NZQRC", "ℕℤℚℝℂ", strict=True)}
_EXPANDED |= {rf"\{letter}": (r"\mathbb", letter) for letter in "NZQRC"}


def plain_latex(answer: str) -> str:
    """Return the answer with redundant LaTeX removed.

    Spaces remain only where they carry meaning: between two digits (`1 1/2`), between a comma and a digit (`1, 234` is
    a list, `1,234` a number), between a command and a letter, and inside `\\text{...}`.

    Args:
        answer: any string, such as `\\left( \\dfrac{1}{2},\\, x^{2} \\right).`, which gives `(\\frac12,x^2)`.
    """
    out: list[str] = []
    open_groups: list[tuple[str, int]] = []  # kind, and the index in `out` of the group's first token
    last_group = (-1, -1)  # indices in `out` of the braces closed last
    kind, space, gap, sizing = "plain", False, False, False
    for raw in _TOKEN.findall(answer):
        if raw in _ORDINARY and not space and not gap:  # most of a formula
            out.append(raw)
            kind, sizing = "plain", False
            continue
        token = RENAMED.get(raw if raw.isspace() else raw.rstrip(), raw.rstrip())
        invisible, sizing = sizing and token == ".", token in (r"\left", r"\right")
        if token in _DROPPED or invisible:
            continue
        in_text = bool(open_groups) and open_groups[-1][0] == "text"
        # A tilde is a space behind something and in text, as in `5 \mathrm{~cm}`; `~p` denies.
        if token in _SPACE or token in ("", "\\") or (token == "~" and (in_text or (out and out[-1] in _ENDS))):
            space = True
            continue
        if token in _TEXT or token in _UNWRAPPED:
            kind = "text" if token in _TEXT else "unwrapped"
            continue
        if gap and (token in _DIGITS or token == "." or (token == "{" and kind == "plain")):
            out.append(" ")
            gap = False
        gap = gap and kind == "unwrapped"
        if token == "{":
            if kind == "unwrapped":  # a space before it is one before its content
                open_groups.append((kind, len(out)))
                kind = "plain"
                continue
            out.append(r"\text{" if kind == "text" else "{")
            open_groups.append((kind, len(out)))
        elif token == "}":
            if open_groups:
                last_group = _close_group(out, *open_groups.pop(), last_group)
            # `x^{2}3` and `x^{2}{3}` are no `x^23`: the braces may go, not the gap.
            kind, space, gap = "plain", False, _ends_in_argument(out)
            continue
        else:
            if space and (in_text or (out and out[-1][-1] in _BEFORE_SPACE and token in _DIGITS)):
                out.append(" ")
            out.extend(_EXPANDED.get(token, (token,)))
        kind, space = "plain", False
    _strip_end(out)
    if last_group == (0, len(out) - 1):
        out = out[1:-1]
        _strip_end(out)
    return _join(out)


_DIGITS = "0123456789"
_ENDS = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz)]}.,")
_BEFORE_ARGUMENT = (["^"], ["_"], [r"\sqrt"], ["]"])
_BEFORE_SPACE = _DIGITS + ","


def _ends_in_argument(out: list[str]) -> bool:
    """Whether the last token is a digit that is an argument: the `2` of `x^2`."""
    is_second = out[-3:-2] in ([r"\frac"], [r"\binom"]) or out[-2:-1] == ["}"]
    return (is_second or out[-2:-1] in _BEFORE_ARGUMENT) and out[-1] in _DIGITS


def _close_group(out: list[str], kind: str, start: int, last_group: tuple[int, int]) -> tuple[int, int]:
    """Close the group whose content is `out[start:]`; return the new `last_group`."""
    if kind == "unwrapped":
        return last_group
    if len(out) == start or (kind == "plain" and (len(out) - start == 1 or last_group == (start, len(out) - 1))):
        del out[start - 1]  # nothing, one token, or one group: the braces say nothing
        return (start - 1, len(out) - 1) if last_group == (start, len(out)) else last_group
    out.append("}")
    return (start - 1, len(out) - 1) if kind == "plain" else last_group


def _strip_end(tokens: list[str]) -> None:
    """Remove a space, the end of a line and a full stop, also that of `\\text{No.}`, but not the dots of `0.33...`."""
    while tokens[-1:] in ([" "], [r"\\"]) or (tokens[-1:] == ["."] and tokens[-2:] != [".", "."]):
        tokens.pop()
    if tokens[-2:] == [".", "}"] and tokens[-3:] != [".", ".", "}"]:
        opening = next((i for i in reversed(range(len(tokens))) if tokens[i][-1] == "{"), 0)
        if tokens[opening] == r"\text{":
            del tokens[-2]


def _join(tokens: list[str]) -> str:
    """Concatenate, keeping a command apart from a letter that follows it."""
    text = "".join(f"{token} " if token[0] == "\\" and token[-1].isalpha() else token for token in tokens)
    return _COMMAND_AND_SPACE.sub(r"\1", text)


_COMMAND_AND_SPACE = re.compile(r"(\\[A-Za-z]+) (?![^\W\d_])")
_TEXT_GROUP = re.compile(r"([_^]|\\[A-Za-z]+ ?)?\\text\{([^{}]*)\}")


def unwrap_text(text: str) -> str:
    """Return plain LaTeX with `\\text{New York}` replaced by `NewYork`, in braces after `_` and `^`."""

    def content(group: re.Match[str]) -> str:
        before, inside = group[1] or "", group[2].replace(" ", "")
        if before in ("_", "^"):
            return before + (inside if len(inside) == 1 else f"{{{inside}}}")
        return f"{before.rstrip()} {inside}" if before and inside else before + inside

    return _TEXT_GROUP.sub(content, text)
