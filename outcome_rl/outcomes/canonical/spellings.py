r"""Spellings of answers that the grammar does not read, and the one that it reads: one ordered table.

A spelling is a pattern, a replacement, an example and a counter-example: a text that looks alike and stays. Tests and
the table of rules (`python -m bench.outcomes --rules`) take each row from here.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple


class Spelling(NamedTuple):
    """One row. `sign` is a part of every text with the spelling, so that others cost nothing."""

    sign: str
    pattern: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str]
    example: tuple[str, str]
    counter: str


def respelled(answer: str) -> str:
    """Return the answer in the spelling that the grammar reads, or as it is."""
    answer = _undecorated(answer if answer.isascii() else _ascii(answer))
    for row in SPELLINGS:
        if row.sign in answer:
            answer = row.pattern.sub(row.replacement, answer)
    return answer


# Characters: digits of full width and bold ones, fractions of one character, raised, lowered and circled numbers.
_ONE_CHARACTER: dict[int, str] = {0xFF10 + digit: str(digit) for digit in range(10)} | {0xFF0E: ".", 0xFF0F: "/"}
_ONE_CHARACTER |= {first + 0xFEE0 + i: chr(first + i) for first in map(ord, "Aa") for i in range(26)}
_ONE_CHARACTER |= {ord(variant): letter for variant, letter in zip("ϵϕϑϱ", "εφθρ", strict=True)}
_ONE_CHARACTER |= {ord("∛"): r"\sqrt[3]", ord("∜"): r"\sqrt[4]", ord("∈"): r"\in "}
_ONE_CHARACTER |= {ord("①") + i: f"({i + 1})" for i in range(20)} | {0x1D7CE + i: str(i % 10) for i in range(50)}
_ONE_CHARACTER |= {
    ord(sign): rf"\frac{{{unicodedata.normalize('NFKC', sign).replace('⁄', '}{')}}}" for sign in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒"
}
_RAISED, _LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "₀₁₂₃₄₅₆₇₈₉"
_RAISED_FRACTION = re.compile(rf"(?<![0-9⁰¹²³⁴⁵⁶⁷⁸⁹A-Za-z)}}\]])([⁰¹²³⁴⁵⁶⁷⁸⁹]+)[⁄/]([{_LOWERED}]+)(?![0-9{_LOWERED}])")
_SCRIPTS = re.compile(rf"(?P<raised>[{_RAISED}]+)|[{_LOWERED}]+")
# A dash before a variable, a command or a multiple of one: `5 – x` and `3 – 2i` are no ranges.
_MINUS = re.compile(r"[–—](?=\s*(?:[0-9.]+\s*)?(?:[A-Za-z](?![A-Za-z])|\\(?!text|math)[a-z]))")
_PERIOD_BAR = re.compile("(?<=[0-9.])([0-9])\u0305")


def _plain_digits(signs: str) -> str:
    return unicodedata.normalize("NFKC", signs).replace("−", "-")


def _ascii(answer: str) -> str:
    """Return digits, fractions and scripts of one character in ASCII; invisible characters go."""
    answer = "".join(sign for sign in answer if sign.isascii() or unicodedata.category(sign) != "Cf")
    answer = _RAISED_FRACTION.sub(
        lambda one: rf"\frac{{{_plain_digits(one[1])}}}{{{_plain_digits(one[2])}}}", answer.translate(_ONE_CHARACTER)
    )
    answer = _SCRIPTS.sub(lambda one: f"{'^' if one['raised'] else '_'}{{{_plain_digits(one[0])}}}", answer)
    return _PERIOD_BAR.sub(r"\\overline{\1}", _MINUS.sub("-", answer))


def _undecorated(answer: str) -> str:
    """Return the answer without signs of approval and full stops of any script behind it: `18 ✅`, `25。`."""
    end = len(answer)
    while end and not answer[end - 1].isascii() and _is_decoration(answer[end - 1]):
        end -= 1
        while end and answer[end - 1].isspace():
            end -= 1
    return answer[:end] or answer


def _is_decoration(sign: str) -> bool:
    return sign in "。．｡।∎\ufe0f" or (unicodedata.category(sign) == "So" and sign not in "°℃℉△▲")


_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
# Functions as words before a letter, which would run into it: `sin x`, `max a`. `sec` and `min` are units there.
_WORD_FUNCTIONS = "arcsin arccos arctan sinh cosh tanh sin cos tan cot csc ln log exp sqrt gcd lcm"
# Short words would be read as products of letters.
_PROSE = "not no none all any for the if is are of to by when where with then than from only each every some"
_OUTSIDE_OF_TEXT = (
    rf"(?P<scaled>(?<=[0-9}}\s])\\(?:text|mathrm|mbox)\s*\{{\s*({'|'.join(_SCALES)})(?![A-Za-z])\s*)"
    r"|(?P<group>\\(?:text[a-z]*|mathrm|mbox|hbox|operatorname)\s*\{[^{}]*\})|(?<=[\s$})\]])(?P<word>and|or)(?=[\s$\\])"
    rf"|(?<![A-Za-z\\])(?P<prose>{'|'.join(_PROSE.split())})(?=\s)"
    rf"|(?<=[0-9}}\s])(?P<scale>{'|'.join(_SCALES)})(?![A-Za-z])"
    rf"|(?<![A-Za-z\\])(?P<function>{'|'.join(_WORD_FUNCTIONS.split())})(?=\s+[A-Za-z\\])"
)


def _outside_of_text(match: re.Match[str]) -> str:
    if word := match["word"] or match["prose"]:
        return rf"\text{{ {word} }}"
    if scale := match["scale"]:
        return rf"\cdot 10^{{{_SCALES[scale]}}}"
    if match["scaled"]:  # what else the group holds stays in it
        return rf"\cdot 10^{{{_SCALES[match[2]]}}}\text{{"
    return rf"\{match['function']}" if match["function"] else match["group"]


# Names of functions in Chinese, French and Russian texts.
_ABROAD = {"tg": "tan", "ctg": "cot", "cotg": "cot", "arctg": "arctan", "arcctg": "arccot", "cosec": "csc"}
_AT_HOME = "arcsin|arccos|arctan|arccot|sinh|cosh|tanh|coth|sin|cos|tan|cot|csc|ln|log|lg|exp"
_FUNCTION = (
    rf"\\(?:(?:operatorname\*?|mathrm)\s*\{{\s*({'|'.join(_ABROAD)}|{_AT_HOME})\s*\}}"
    rf"|({'|'.join(_ABROAD)})(?![A-Za-z]))"
)


def _function(match: re.Match[str]) -> str:
    name = match[1] or match[2]
    return rf"\{_ABROAD.get(name, name)} "


_ALL_TEXT = r"^\s*+\$?\s*+\\(?:text(?:bf|it|rm)?|mathrm|mbox)\s*\{\s*((?:[^{}\\$]|\\%)*?)\s*\}\s*+\.?\s*+\$?\s*+$"
_QUANTITY = re.compile(r"(-?[0-9][0-9.,/]*)(?: ?(st|nd|rd|th)| ([A-Za-z][A-Za-z ]*))?")
_LIST = re.compile(r"[^\W_]+(?:\s*(?:,|,?\s+and\s)\s*[^\W_]+)+")
_FORMULA = re.compile(r"(?=.*[0-9])(?:[^A-Za-z]|(?<![A-Za-z])[A-Za-z](?![A-Za-z]))+")  # a number, and no word


def _without_text(match: re.Match[str]) -> str:
    r"""Return a list or a number with its unit as it stands outside of the `\text{}` around all of it."""
    if quantity := _QUANTITY.fullmatch(match[1]):
        number, ordinal, unit = quantity.groups()
        return rf"{number}\text{{ {unit}}}" if unit else f"{number}{ordinal or ''}"
    return match[1] if _LIST.fullmatch(match[1]) or _FORMULA.fullmatch(match[1]) else match[0]


_BODY = r"(?P<body>(?:(?!\\begin|\\end|\\text).)*)"
_SYSTEM = (
    rf"^\s*\$?(?:\\begin\s*\{{cases\}}{_BODY}\\end\s*\{{cases\}}"
    r"|\\left\s*\\(?:\{|lbrace)\s*\\begin\s*\{(?P<kind>array|aligned|gathered|matrix)\}(?:\s*\{[lcr]+\})?"
    rf"{_BODY.replace('body', 'rows')}\\end\s*\{{(?P=kind)\}}\s*\\right\s*\.)\$?\s*$"
)
_LABELLED_ROW = re.compile(r"\s*([A-Za-z]\s*&?\s*=\s*&?[^=<>&,;]+?)\s*[,;.]?\s*")


def _values(match: re.Match[str]) -> str:
    """Return `x = 1, y = 2` for the rows of a system that gives each variable a value."""
    rows = [row for row in re.split(r"\\\\|\\cr", match["body"] or match["rows"] or "") if row.strip()]
    labelled = [_LABELLED_ROW.fullmatch(row) for row in rows]
    values = [row[1].replace("&", "") for row in labelled if row is not None]
    return ", ".join(values) if len(values) == len(rows) > 1 else match[0]


_BOLD = r"\\(?:mathbf|boldsymbol|bm|pmb|bold)\s*(?:\{\s*(\\?[A-Za-z]+)\s*\}|([A-Za-z]))"
# A product of vectors or sets, which do not commute.
_CROSS = re.compile(rf"{_BOLD}.*(?:\\times(?![A-Za-z])|×).*{_BOLD}", re.DOTALL)


def _vector(match: re.Match[str]) -> str:
    return rf"\vec{{{match[1] or match[2]}}}" if _CROSS.search(match.string) else match[0]


def _usual(match: re.Match[str]) -> str:
    usual = f"\\{match[1]}"
    return match[0] if usual in match.string else usual  # else the text tells them apart


def _halved(match: re.Match[str]) -> str:
    return re.sub(r"\\+", lambda run: run[0][len(run[0]) // 2 :], match[0])


def _single(match: re.Match[str]) -> str:
    return match[0] if r"\begin" in match.string else "\\"


def _command(match: re.Match[str]) -> str:
    return ("\\f" if match[1] == "rac" else "\\t") + match[1]


def _union(match: re.Match[str]) -> str:
    return re.sub(r"(?<=[\])]),\s*(?=[\[(])", r" \\cup ", match[1])


def _labels(match: re.Match[str]) -> str:
    return ", ".join(re.findall(r"\(([0-9A-Za-z]+)\)", match[0]))


_LABEL = r"\((?:[0-9]{1,2}|[a-h]|[A-H]|[ivx]{1,4})\)"
_TEXT_OPENS = r"^\$?(?:\\(?:text|textbf|mathrm|mathbf) ?\{ ?)?"


def _row(
    sign: str,
    pattern: str,
    replacement: str | Callable[[re.Match[str]], str],
    example: tuple[str, str],
    counter: str,
) -> Spelling:
    return Spelling(sign, re.compile(pattern, re.DOTALL), replacement, example, counter)


SPELLINGS: tuple[Spelling, ...] = (
    # Of all of an answer: escapes, decorations, choices with their values, labels of statements.
    _row(
        r"\\",
        r"^(?=(?:[^\\]|\\\\)*$)(?=.*\\\\(?:[A-Za-z]{2}|[$%{}])).*",
        _halved,
        (r"\\begin{pmatrix}1\\\\2\\end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        r"\begin{pmatrix}1\\2\end{pmatrix}",
    ),
    _row(r"\\", r"\\\\(?=[A-Za-z]{2})", _single, (r"\\frac12 + \pi", r"\frac12 + \pi"), r"\begin{a}1\\cd\end{a}"),
    # `\f` and `\t` of a string that was not escaped are a form feed and a tab, or lost as spaces at its edge.
    _row(
        "",
        r"[\t\f]?(?<![A-Za-z\\])(rac(?=\s*\{)|ext(?=\s*\{)|(?:heta|imes)(?![A-Za-z]))",
        _command,
        ("rac{1}{2}", r"\frac{1}{2}"),
        "ext(x)",
    ),
    _row(r"\\", r"^\s*\\\\\s*(?=[0-9])", "", (r"\\25", "25"), r"1\\25"),
    _row(
        "\\",
        r"(?<![\s~])(?:\s|~|\\(?:checkmark|blacksquare|square|Box|qed)(?![A-Za-z])|\\(?:[hv]space|tag|label)\*?\s*\{[^{}]*\})++(?=[$.\s]*$)",
        "",
        (r"25 \checkmark", "25"),
        r"\square + 25",
    ),
    _row("", r"^\s*(\*\*|__|[*`~])([^*_`~]+)\1\s*$", r"\2", ("~25~", "25"), "~p"),
    _row(
        "",
        _TEXT_OPENS + r"(?:\((?=[A-J]\)\}?\s))?([A-J])(?:[.:]\}?\s(?!\s*[A-Z]\b)|\)\}?|\s[-–—]\s(?=[A-Za-z]{3}))"
        r"(?!\s*(?:and|or)\b)(?:(?![A-J][).])[^:=])*$",
        r"\1",
        ("C) 12", "C"),
        "A:B",
    ),
    _row(
        "",
        _TEXT_OPENS + r"(?i:option|choice) ?\(?([A-J])\)?(?:[.:] [^:=]*|\.? ?)\}?\$?$",
        r"\1",
        ("Option C: Oxygen", "C"),
        "options A",
    ),
    _row("[", r"^\s*\[([A-E])\]\s*$", r"\1", ("[C]", "C"), "[x]"),
    _row(
        ")",
        rf"^\s*{_LABEL}(?:(?:[\s,;、，]|and\b|和|\\text\s*\{{\s*and\s*\}})*{_LABEL})+[\s.]*$",
        _labels,
        ("(1)(3)", "1, 3"),
        "(x)(y)",
    ),
    # Numbers.
    _row("", r"^\s*(?:一共|总共|總共|共有|共)\s*(?=[0-9])", "", ("共18个", "18个"), "公共18"),
    _row(
        "",
        r"(?<![0-9A-Za-z'_])[0-9]{1,3}(?:(?:'[0-9]{3}){2,}|(?:_[0-9]{3}){2,})(?![0-9'_])",
        lambda match: re.sub("['_]", "", match[0]),
        ("1'234'567", "1234567"),
        "x_123",
    ),
    # A period seen three times, or a long one twice: the digits of e, 2.718281828..., are no period.
    _row(
        ".",
        r"(?<![0-9.,])([0-9]*\.[0-9]*?)(?:([0-9]{1,5}?)\2{2,}|([0-9]{6,12}?)\3+)(?:\.\.\.|…|\\[lc]?dots)(?=[$}\s.]*$)",
        lambda match: rf"{match[1]}\overline{{{match[2] or match[3]}}}",
        ("0.333...", r"0.\overline{3}"),
        "2.718281828...",
    ),
    _row("年", r"([0-9]{4})年([0-9]{1,2})月([0-9]{1,2})日", r"\1-\2-\3", ("2024年3月5日", "2024-3-5"), "3月5日"),
    _row("10", r"(?<=[0-9]) ?[xX✕✖] ?(?=10\s*\^)", r" \\times ", ("1.5 x 10^3", r"1.5 \times 10^3"), "x 10"),
    _row("+", r"\+/-|^\s*\+-(?=\s*[0-9])", r"\\pm ", ("+-7", r"\pm 7"), "x+-7"),
    # Lost braces and stray signs, as tools leave them.
    _row("\\", r"\\(begin|end|mbox)([a-z]+)", r"\\\1{\2}", (r"15\mboxcm^2", r"15\mbox{cm}^2"), r"\mbox{cm}"),
    _row("*sqrt", r"(\\(?:pm|mp|frac)|[-+(=,])\*(?=sqrt\()", r"\1 ", (r"1\pm*sqrt(2)", r"1\pm sqrt(2)"), "2*sqrt(2)"),
    _row(".", r"(?<=[A-Za-z}])\s*\.(?=\s*(?:\\right)?\s*[\])])", "", (r"(1,\sqrt{2}.]", r"(1,\sqrt{2}]"), "(1,2.)"),
    _row("quad", r"(\\q?quad)(?=[A-Za-z])", r"\1 ", (r"1\quad2\quadx", r"1\quad2\quad x"), r"\quad 1"),
    # Signs and names of functions.
    _row("**", r"\*\*", "^", ("2**10", "2^10"), "2*10"),
    _row("!=", r"!=", r"\\neq ", ("x != 2", r"x \neq  2"), "n! = 6"),
    _row(
        r"\prime",
        r"\^\s*(?:\{\s*((?:\\prime\s*)+)\}|\\prime(?![A-Za-z]))",
        lambda match: "'" * match[0].count("prime"),
        (r"f^{\prime}", "f'"),
        r"\prime",
    ),
    _row(r"\var", r"\\var(epsilon|phi|theta|rho)(?![A-Za-z])", _usual, (r"\varphi", r"\phi"), r"\varphi + \phi"),
    _row("\\", _FUNCTION, _function, (r"\tg x", r"\tan  x"), r"\tgx"),
    _row("\\", _BOLD, _vector, (r"\mathbf{a} \times \mathbf{b}", r"\vec{a} \times \vec{b}"), r"\mathbf{a}"),
    _row("\\", _ALL_TEXT, _without_text, (r"\text{5 cm}", r"5\text{ cm}"), r"\text{five}"),
    # Sets, systems and parameters.
    _row(
        "\\",
        r"(?P<in>(?:\\in(?![A-Za-z])|∈)\s*)(?:\\math(?:bf|rm)\s*\{\s*(?P<bold>[NZQRC])\s*\}|(?P<bare>[NQR])(?![A-Za-z0-9_^'({\\]))"
        r"|^(?P<all>\s*\$?\s*)\\mathbf\s*\{\s*R\s*\}(?=[\s.$]*$)",
        lambda match: rf"{match['in'] or match['all'] or ''}\mathbb{{{match['bold'] or match['bare'] or 'R'}}}",
        (r"x \in R", r"x \in \mathbb{R}"),
        "R",
    ),
    _row("\\", _SYSTEM, _values, (r"\begin{cases}x=1\\y=2\end{cases}", "x=1, y=2"), r"\begin{cases}x=1\end{cases}"),
    # Words and functions between formulas: they may be parts of the rows before.
    _row(
        "",
        _OUTSIDE_OF_TEXT,
        _outside_of_text,
        ("5 million", r"5 \cdot 10^{6}"),
        r"\text{5 million}",
    ),
    # What computer algebra prints.
    _row("log", r"(?<![A-Za-z\\])log(2|10)\(", r"\\log_{\1}(", ("log2(8)", r"\log_{2}(8)"), "log(8)"),
    _row("FiniteSet(", r"FiniteSet\(([^()]*)\)", r"\\{\1\\}", ("FiniteSet(1,2)", r"\{1,2\}"), "Set(1,2)"),
    _row("Interval(", r"(?<![A-Za-z])Interval\(([^()]*)\)", r"[\1]", ("Interval(0, 1)", "[0, 1]"), "Interval"),
    _row("Interval.open(", r"(?<![A-Za-z])Interval\.open\(", "(", ("Interval.open(0,1)", "(0,1)"), "Interval"),
    _row("Union(", r"^\s*Union\((.*)\)\s*$", _union, ("Union([0,1],[2,3])", r"[0,1] \cup [2,3]"), "Union"),
)  # fmt: skip
