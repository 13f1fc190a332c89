r"""Spellings of answers that the grammar does not read, and the one that it reads: one ordered table.

A spelling is a pattern, a replacement, an example and a counter-example: a text that looks alike and stays. Tests and
the table of rules (`python -m bench.outcomes --rules`) take each row from here.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from outcome_rl.outcomes.canonical.choices import CHOICE


class Spelling(NamedTuple):
    """One row. `sign` is a part of every text with the spelling, so that others cost nothing."""

    sign: str
    pattern: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str]
    example: tuple[str, str]
    counter: str


def respelled(answer: str) -> str:
    """Return the answer in the spelling that the grammar reads, or as it is."""
    answer = answer if answer.isascii() else _ascii(answer)
    for row in SPELLINGS:
        if row.sign in answer:
            answer = row.pattern.sub(row.replacement, answer)
    return answer


# Characters: letters of full width, full stops, fractions of one character, raised, lowered and circled numbers.
_ONE_CHARACTER: dict[int, str] = {0xFF0E: ".", 0xFF0F: "/", ord("。"): ".", ord("।"): "."}
_ONE_CHARACTER |= {first + 0xFEE0 + i: chr(first + i) for first in map(ord, "Aa") for i in range(26)}
_ONE_CHARACTER |= {ord(variant): letter for variant, letter in zip("ϵϕϑϱ", "εφθρ", strict=True)}
_ONE_CHARACTER |= {ord("∛"): r"\sqrt[3]", ord("∜"): r"\sqrt[4]", ord("∈"): r"\in "}
_ONE_CHARACTER |= {ord("①") + i: f"({i + 1})" for i in range(20)}
_ONE_CHARACTER |= {
    ord(sign): rf"\frac{{{unicodedata.normalize('NFKC', sign).replace('⁄', '}{')}}}" for sign in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒"
}
_RAISED, _LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "₀₁₂₃₄₅₆₇₈₉"
_SCRIPTS = re.compile(rf"(?P<raised>[{_RAISED}]+)|[{_LOWERED}]+")
_PERIOD_BAR = re.compile("(?<=[0-9.])([0-9])\u0305")


def _plain_digits(signs: str) -> str:
    return unicodedata.normalize("NFKC", signs).replace("−", "-")


def _ascii(answer: str) -> str:
    """Return digits of any script, fractions and scripts of one character in ASCII; invisible characters go."""
    answer = "".join(sign for sign in answer if sign.isascii() or unicodedata.category(sign) != "Cf")
    answer = "".join(str(unicodedata.decimal(sign, sign)) for sign in answer).translate(_ONE_CHARACTER)
    answer = _SCRIPTS.sub(lambda one: f"{'^' if one['raised'] else '_'}{{{_plain_digits(one[0])}}}", answer)
    return _PERIOD_BAR.sub(r"\\overline{\1}", answer)


_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
# Functions as words before a letter, which would run into it: `sin x`, `max a`. `sec` and `min` are units there.
_WORD_FUNCTIONS = "arcsin arccos arctan sinh cosh tanh csch sin cos tan cot csc ln log exp sqrt gcd lcm"
# Short words would be read as products of letters.
_PROSE = "not no none all any for the if is are of to by when where with then than from only each every some"
_OUTSIDE_OF_TEXT = (
    r"(?P<group>\\(?:text[a-z]*|mathrm|mbox|hbox|operatorname)\s*\{[^{}]*\})|(?<=[\s$})\]])(?P<word>and|or)(?=[\s$\\])"
    rf"|(?<![A-Za-z\\])(?P<prose>{'|'.join(_PROSE.split())})(?=\s)"
    rf"|(?<=[0-9}}\s])(?P<scale>{'|'.join(_SCALES)})(?![A-Za-z])"
    rf"|(?<![A-Za-z\\])(?P<function>{'|'.join(_WORD_FUNCTIONS.split())})(?=\s+[A-Za-z\\])"
)


def _outside_of_text(match: re.Match[str]) -> str:
    if word := match["word"] or match["prose"]:
        return rf"\text{{ {word} }}"
    if scale := match["scale"]:
        return rf"\cdot 10^{{{_SCALES[scale]}}}"
    return rf"\{match['function']}" if match["function"] else match["group"]


_ALL_TEXT = r"^\s*+\$?\s*+\\(?:text(?:bf|it|rm)?|mathrm|mbox)\s*\{\s*((?:[^{}\\$]|\\%)*?)\s*\}\s*+\.?\s*+\$?\s*+$"
_LIST = re.compile(r"[^\W_]+(?:\s*(?:[,，、]|,?\s+and\s)\s*[^\W_]+)+")
_FORMULA = re.compile(r"(?=.*[0-9])(?:[^A-Za-z]|(?<![A-Za-z])[A-Za-z](?![A-Za-z]))+")  # a number, and no word


def _without_text(match: re.Match[str]) -> str:
    r"""Return a list or a formula as it stands outside of the `\text{}` around all of it."""
    return match[1] if _LIST.fullmatch(match[1]) or _FORMULA.fullmatch(match[1]) else match[0]


_BOLD = r"\\(?:mathbf|boldsymbol|bm|pmb|bold)\s*(?:\{\s*(\\?[A-Za-z]+)\s*\}|([A-Za-z]))"
# A product of vectors or sets, which do not commute.
_CROSS = re.compile(rf"{_BOLD}.*(?:\\times(?![A-Za-z])|×).*{_BOLD}", re.DOTALL)


def _vector(match: re.Match[str]) -> str:
    return rf"\vec{{{match[1] or match[2]}}}" if _CROSS.search(match.string) else match[0]


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


def _chosen(match: re.Match[str]) -> str:
    letters = re.findall("[A-H]", match[0])
    return "".join(sorted(letters)) if len(set(letters)) == len(letters) else match[0]


_LABEL = r"\((?:[0-9]{1,2}|[a-h]|[A-H]|[ivx]{1,4})\)"
_GAP = r"(?:\s|\\[ ,;:]|\\q?quad)*"


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
        CHOICE,
        r"\g<letter>",
        ("C) 12", "C"),
        "A:B",
    ),
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
    # Signs and names of functions.
    _row("**", r"\*\*", "^", ("2**10", "2^10"), "2*10"),
    _row("!=", r"!=", r"\\neq ", ("x != 2", r"x \neq  2"), "n! = 6"),
    _row(
        "\\",
        rf"\\(?:operatorname\*?|mathrm)\s*\{{\s*({'|'.join(_WORD_FUNCTIONS.split())})\s*\}}",
        r"\\\1 ",
        (r"\operatorname{sin} x", r"\sin  x"),
        r"\operatorname{tg} x",
    ),
    _row("\\", _BOLD, _vector, (r"\mathbf{a} \times \mathbf{b}", r"\vec{a} \times \vec{b}"), r"\mathbf{a}"),
    _row("\\", _ALL_TEXT, _without_text, (r"\text{5, 6}", "5, 6"), r"\text{five}"),
    _row(
        "",
        rf"^[\s$]*[A-H](?:{_GAP}(?:[,;，、；]|and\b|和|\\text\s*\{{\s*and\s*\}}){_GAP}[A-H])+[\s.$]*$",
        _chosen,
        ("C, A and D", "ACD"),
        "A, x",
    ),
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
