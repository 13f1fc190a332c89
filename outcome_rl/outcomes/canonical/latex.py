"""Remove the parts of a LaTeX answer that do not change its meaning, and list the units.

One pass over the tokens: delimiters, sizing and fonts go, spelling variants and Unicode signs become one command, and a
group of one token loses its braces, as TeX reads `\\frac{1}{2}` and `\\frac12`, `x^{2}` and `x^2` alike. Text groups
stay as `\\text{...}` until `unwrap_text`, because only there is a lone letter a unit: `5\\text{ m}` but not `5m`.
"""

import re
import unicodedata

from outcome_rl.outcomes.canonical.respelled import respelled

_TOKEN = re.compile(r"\\[A-Za-z]+\s*|\\!\s*|\\.|\s+|.", re.DOTALL)

_CURRENCIES = frozenset(("$", "£", "€", "¥", "￥", "¢", "₹", r"\$", r"\yen", r"\cent"))
_DROPPED = _CURRENCIES | frozenset((r"\(", r"\)", r"\[", r"\]", r"\!", r"\/", r"\left", r"\right", r"\middle"))
_DROPPED |= frozenset(rf"\{size}{side}" for size in ("big", "Big", "bigg", "Bigg") for side in ("", "l", "r", "m"))
_SIZES_AND_FONTS = r"""
\displaystyle \textstyle \scriptstyle \limits \rm \bf \it \sf \tt \bfseries \itshape
\tiny \small \normalsize \large \Large \LARGE \huge \Huge
"""
_DROPPED |= frozenset(_SIZES_AND_FONTS.split())
_SPACE = frozenset((r"\,", r"\:", r"\;", r"\>", r"\quad", r"\qquad", r"\enspace", r"\thinspace"))
_TEXT = frozenset(rf"\text{style}" for style in ("", "rm", "bf", "it", "sf", "tt", "normal"))
_TEXT |= frozenset((r"\mathrm", r"\mbox", r"\hbox", r"\emph", r"\operatorname"))
_UNWRAPPED = frozenset((r"\mathbf", r"\mathit", r"\mathsf", r"\mathtt", r"\boldsymbol", r"\bm", r"\pmb", r"\bold"))
_UNWRAPPED |= frozenset((r"\boxed", r"\fbox", r"\underline", r"\ensuremath"))
_SPELLINGS = {
    r"\frac": r"\dfrac \tfrac \cfrac", r"\leq": r"\le \leqslant ≤ ⩽", r"\geq": r"\ge \geqslant ≥ ⩾", r"\neq": r"\ne ≠",
    "<": r"\lt ＜", ">": r"\gt ＞", "%": r"\% ％", r"\{": r"\lbrace", r"\}": r"\rbrace",
    "|": r"\lvert \rvert \vert \mid ∣", ",": "，", "-": "− － ‐ ‑", r"\times": "×", r"\cdot": "· ⋅ ∙", r"\pi": "π",
    r"\infty": "∞", r"\sqrt": "√", r"\cup": r"∪ \cupdot", r"\cap": "∩", r"\in": "∈", r"\emptyset": r"∅ \varnothing",
    ":": r"\colon ：", ";": "；", "+": "＋", "/": "⁄ ∕", "'": "′",
    r"\pm": "±", r"\mp": "∓", r"\equiv": "≡", r"\setminus": r"∖ \backslash \smallsetminus", r"\angle": "∠",
    r"\lfloor": "⌊", r"\rfloor": "⌋", r"\lceil": "⌈", r"\rceil": "⌉", r"\langle": "⟨", r"\rangle": "⟩",
    r"\ldots": "…", "=": "＝", "(": "（", ")": "）", r"\approx": r"\doteq \thickapprox",
    r"\|": r"\lVert \rVert \Vert ‖ ∥", r"\binom": r"\dbinom \tbinom", "[": r"\lbrack", "]": r"\rbrack",
}  # fmt: skip
_RENAMED = {spelling: name for name, spellings in _SPELLINGS.items() for spelling in spellings.split()}
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
        token = _RENAMED.get(raw if raw.isspace() else raw.rstrip(), raw.rstrip())
        invisible, sizing = sizing and token == ".", token in (r"\left", r"\right")
        if token in _DROPPED or invisible:
            continue
        in_text = bool(open_groups) and open_groups[-1][0] == "text"
        # A tilde is a space behind something and in text, as in `5 \mathrm{~cm}`; `~p` denies.
        if token in _SPACE or token in ("", "\\") or (token == "~" and (in_text or (out and out[-1] in _ENDS))):
            space = True
            continue
        if token in _DASHES and not (out and out[-1] in _DIGITS and not _ends_in_argument(out)):  # `5–10` is a range
            token = "-"
        if token in _TEXT or token in _UNWRAPPED:
            kind = "text" if token in _TEXT else "unwrapped"
            continue
        gap = gap or (token == "{" and kind != "text" and _ends_in_argument(out))
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


# Functions as words before a letter, which would run into it: `sin x`, `max a`. `sec` and `min` are units there.
_WORD_FUNCTIONS = "arcsin arccos arctan sinh cosh tanh sin cos tan cot csc ln log exp sqrt gcd lcm"
# Short words would be read as products of letters.
_PROSE = "not no none all any for the if is are of to by when where with then than from only each every some"
_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_OUTSIDE_OF_TEXT = re.compile(
    rf"(?P<scaled>(?<=[0-9}}\s])\\(?:text|mathrm|mbox)\s*\{{\s*({'|'.join(_SCALES)})(?![A-Za-z])\s*)"
    r"|(?P<group>\\(?:text[a-z]*|mathrm|mbox|hbox|operatorname)\s*\{[^{}]*\})|(?<=[\s$})\]])(?P<word>and|or)(?=[\s$\\])"
    rf"|(?<![A-Za-z\\])(?P<prose>{'|'.join(_PROSE.split())})(?=\s)"
    rf"|(?<=[0-9}}\s])(?P<scale>{'|'.join(_SCALES)})(?![A-Za-z])"
    rf"|(?<![A-Za-z\\])(?P<function>{'|'.join(_WORD_FUNCTIONS.split())})(?=\s+[A-Za-z\\])|(?P<power>\*\*)|(?P<unequal>!=)"
)
_EMPHASIS = re.compile(r"\*\*([^*]+)\*\*|__([^_]+)__|`([^`]+)`")

# Remains of `\begin{pmatrix}`, `\mbox{cm}` and `\pm\sqrt{5}` in sources that print LaTeX through other tools.
_LOST_BRACES = re.compile(r"\\(begin|end|mbox)([a-z]+)")
_ROW_GAP = re.compile(r"\\\\\s*\[\s*-?[0-9.]+\s*(?:pt|pc|em|ex|mm|cm|in)\s*\]")  # a length, no element
_VARIANTS = [(rf"\var{letter}", rf"\{letter}") for letter in ("epsilon", "phi", "theta", "rho")]  # of one letter
_STRAY_PRODUCT = re.compile(r"(\\(?:pm|mp|frac)|[-+(=,])\*(?=sqrt\()")
_BOLD = re.compile(r"\\(?:mathbf|boldsymbol|bm|pmb|bold)\s*(?:\{\s*(\\?[A-Za-z]+)\s*\}|([A-Za-z]))")
# A product of vectors or sets, which do not commute.
_CROSS = re.compile(rf"{_BOLD.pattern}.*(?:\\times(?![A-Za-z])|×).*{_BOLD.pattern}", re.DOTALL)
_PRIMES = re.compile(r"\^\s*(?:\{\s*((?:\\prime\s*)+)\}|\\prime(?![A-Za-z]))")
_MATRIX = re.compile(r"Matrix\(\s*\[\s*\[([^()]*)\]\s*\]\s*\)")
_GLUED_SPACE = re.compile(r"(\\q?quad)(?=[A-Za-z])")
_ESCAPED_TWICE = re.compile(r"\\\\(?=[A-Za-z]{2})")
# Digits of full width, fractions of one character, raised and lowered digits.
_ONE_CHARACTER: dict[int, str] = {0xFF10 + digit: str(digit) for digit in range(10)} | {0xFF0E: ".", 0xFF0F: "/"}
_ONE_CHARACTER |= {first + 0xFEE0 + i: chr(first + i) for first in map(ord, "Aa") for i in range(26)}
_ONE_CHARACTER |= {ord(variant): letter for variant, letter in zip("ϵϕϑϱ", "εφθρ", strict=True)}
_ONE_CHARACTER |= {ord(sign): "" for sign in "\u200b\u200c\u200d\u2060\ufeff"} | {
    ord("∛"): r"\sqrt[3]",
    ord("∜"): r"\sqrt[4]",
}
_ONE_CHARACTER |= {
    ord(sign): rf"\frac{{{unicodedata.normalize('NFKC', sign).replace('⁄', '}{')}}}" for sign in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒"
}
_RAISED, _LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "₀₁₂₃₄₅₆₇₈₉"
_RAISED_FRACTION = re.compile(rf"(?<![0-9⁰¹²³⁴⁵⁶⁷⁸⁹A-Za-z)}}\]])([⁰¹²³⁴⁵⁶⁷⁸⁹]+)[⁄/]([{_LOWERED}]+)(?![0-9{_LOWERED}])")
_SCRIPTS = re.compile(rf"(?P<raised>[{_RAISED}]+)|[{_LOWERED}]+")


def _script(match: re.Match[str]) -> str:
    return f"{'^' if match['raised'] else '_'}{{{_plain_digits(match[0])}}}"


def _plain_digits(signs: str) -> str:
    return unicodedata.normalize("NFKC", signs).replace("−", "-")


def _raised_fraction(match: re.Match[str]) -> str:
    return rf"\frac{{{_plain_digits(match[1])}}}{{{_plain_digits(match[2])}}}"


# A dash before a variable, a command or a multiple of one: `5 – x` and `3 – 2i` are no ranges.
_MINUS = re.compile(r"[–—](?=\s*(?:[0-9.]+\s*)?(?:[A-Za-z](?![A-Za-z])|\\(?!text|math)[a-z]))")
_PERIOD_BAR = re.compile("(?<=[0-9.])([0-9])\u0305")
# A period seen three times, or a long one twice: the digits of e, 2.718281828..., are no period.
_DOTTED = re.compile(
    r"(?<![0-9.,])([0-9]*\.[0-9]*?)(?:([0-9]{1,5}?)\2{2,}|([0-9]{6,12}?)\3+)(?:\.\.\.|…|\\[lc]?dots)(?=[$}\s.]*$)"
)


def _period(match: re.Match[str]) -> str:
    return rf"{match[1]}\overline{{{match[2] or match[3]}}}"


_MENDS = re.compile(r"`|__|and|or|Mat|illion|hundred|quad|\*\*|!=|\\prime|[a-z]\s")


def mended(answer: str) -> str:
    """Return the answer with lost braces and stray signs repaired, and words between formulas separated from letters.

    Short words become text, the names of functions commands, `million` a factor, `**` and `!=` the signs that they
    stand for, `^{\\prime}` a prime; Markdown emphasis and the second of two backslashes of escaped text go.
    """
    if not answer.isascii():
        answer = _RAISED_FRACTION.sub(_raised_fraction, answer.translate(_ONE_CHARACTER))
        answer = _PERIOD_BAR.sub(r"\\overline{\1}", _SCRIPTS.sub(_script, _MINUS.sub("-", answer)))
    if answer.endswith((".", "…", "dots", "$", "}")):
        answer = _DOTTED.sub(_period, answer)
    if "\\\\" in answer:
        answer = _ROW_GAP.sub(r"\\\\", answer)
    answer = respelled(answer)
    if "\\\\" in answer and "\\begin" not in answer:
        answer = _ESCAPED_TWICE.sub(r"\\", answer)
    if "\\begin" in answer or "\\mbox" in answer:
        answer = _LOST_BRACES.sub(r"\\\1{\2}", answer)
    if "\\var" in answer:
        for variant, usual in _VARIANTS:
            if usual not in answer:  # else the text tells them apart
                answer = answer.replace(variant, usual)
    if "+/-" in answer:
        answer = answer.replace("+/-", r"\pm ")
    if ("\\times" in answer or "×" in answer) and _CROSS.search(answer):
        answer = _BOLD.sub(r"\\vec{\1\2}", answer)
    if "*sqrt" in answer:
        answer = _STRAY_PRODUCT.sub(r"\1 ", answer)
    if _MENDS.search(answer) is None:
        return answer
    if emphasis := _EMPHASIS.fullmatch(answer):
        answer = emphasis[1] or emphasis[2] or emphasis[3]
    answer = _MATRIX.sub(_matrix, _GLUED_SPACE.sub(r"\1 ", answer))
    answer = _PRIMES.sub(lambda match: "'" * match[0].count("prime"), answer)
    return _OUTSIDE_OF_TEXT.sub(_mend, answer)


def _matrix(match: re.Match[str]) -> str:
    rows = r"\\".join(row.replace(",", "&") for row in re.split(r"\]\s*,\s*\[", match[1]))
    return rf"\begin{{pmatrix}}{rows}\end{{pmatrix}}"


def _mend(match: re.Match[str]) -> str:
    if word := match["word"] or match["prose"]:
        return rf"\text{{ {word} }}"
    if scale := match["scale"]:
        return rf"\cdot 10^{{{_SCALES[scale]}}}"
    if match["scaled"]:  # what else the group holds stays in it
        return rf"\cdot 10^{{{_SCALES[match[2]]}}}\text{{"
    if match["function"]:
        return rf"\{match['function']}"
    if match["unequal"]:  # not the factorial and the sign of `n! = 6`
        return r"\neq "
    return match["group"] or "^"


_DIGITS = "0123456789"
_DASHES = ("–", "—")
_ENDS = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz)]}.,")
_BEFORE_ARGUMENT = (["^"], ["_"], [r"\sqrt"], ["]"])
_BEFORE_SPACE = _DIGITS + ","


def _ends_in_argument(out: list[str]) -> bool:
    """Whether the last token is a digit that is an argument: the `2` of `x^2`."""
    return out[-2:-1] in _BEFORE_ARGUMENT and out[-1] in _DIGITS


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
    parts: list[str] = []
    for previous, token in zip(["", *tokens], tokens, strict=False):
        if len(previous) > 1 and previous[0] == "\\" and previous[-1].isalpha() and token[0].isalpha():
            parts.append(" ")
        parts.append(token)
    return "".join(parts)


_TEXT_GROUP = re.compile(r"([_^]|\\[A-Za-z]+ ?)?\\text\{([^{}]*)\}")


def unwrap_text(text: str) -> str:
    """Return plain LaTeX with `\\text{New York}` replaced by `NewYork`, in braces after `_` and `^`."""

    def content(group: re.Match[str]) -> str:
        before, inside = group[1] or "", group[2].replace(" ", "")
        if before in ("_", "^"):
            return before + (inside if len(inside) == 1 else f"{{{inside}}}")
        return f"{before.rstrip()} {inside}" if before and inside else before + inside

    return _TEXT_GROUP.sub(content, text)


# Closed lists: dropping any word would also drop "million" and "p.m.". Letters that are variables as often, such as
# m, mg and ml, are a unit in text mode only.
UNIT_WORDS = (
    r"mph|km/hr?|miles(?: ?per ?|/)hour"
    r"|(?:(?:square|cubic|sq\.?|cu\.?) ?)?(?:units?|inch(?:es)?|feet|foot|ft|yards?|miles?"
    r"|(?:centi|milli|kilo)?met(?:er|re)s?|cm|mm|km)|degrees?|percent(?:age)?|pct|radians?|dollars?|cents?"
    r"|(?:milli|kilo)?grams?|kg|pounds?|lbs?|ounces?|oz"
    r"|(?:milli)?lit(?:er|re)s?|gallons?|hours?|hrs?|minutes?|mins?|seconds?|secs?|days?|weeks?|months?|years?"
)
_UNIT_IN_TEXT = (
    rf"(?:{UNIT_WORDS}|[mgsLhJNW]|m[glLsACV]|in|yd|mi|dm|nm|ha|tons?|tonnes?|acres?|hectares?|m?mol|moles?|[kMG]?Hz|[kM]?Pa|k[JWN]|k?V"
    r"|eV|k?cal|newtons?|joules?|watts?|volts?|amp(?:ere)?s?|coulombs?|milliseconds?|nanomet(?:er|re)s?"
    r"|euros?|yuan|rupees?)"
)
UNIT_WORDS_IN_TEXT = rf"(?:{_UNIT_IN_TEXT}(?: ?(?:/|per) ?{_UNIT_IN_TEXT})?)"
_COUNTERS = """
元 块 円 美元 欧元 日元 英镑 个 個 人 名 只 隻 本 件 支 枚 张 張 棵 条 頭 头 匹 台 辆
冊 册 颗 粒 株 户 篇 封 袋 瓶 箱 包
页 頁 道 题 杯 碗 盒 桶 根 片 朵 座 间 套
米 厘米 毫米 分米 千米 公里 平方米 平方厘米 平方千米 平方公里 立方米 立方厘米 克 千克 公斤 吨 升 毫升
度 秒 分 分钟 小时 时间 時間 天 日 周 星期 年 岁 歳
"""
COUNTER = rf"(?:{'|'.join(sorted(_COUNTERS.split(), key=len, reverse=True))})"
"""Chinese and Japanese units, a closed list: other characters compare, order or divide (`5以上`, `5分之一`)."""
