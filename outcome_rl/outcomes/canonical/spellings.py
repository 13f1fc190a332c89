r"""Spellings of answers that the grammar does not read, and the one that it reads: one ordered table.

A spelling is a pattern, a replacement, an example and a counter-example: a text that looks alike and stays. Tests and
the table of rules (`python -m bench.outcomes --rules`) take each row from here.
"""

import calendar
import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from outcome_rl.outcomes.canonical.choices import CHOICE
from outcome_rl.outcomes.canonical.number_words import WORDS, number_of
from outcome_rl.outcomes.canonical.units import UNIT_WORDS, readings_of


class Spelling(NamedTuple):
    """One row. `sign` is a part of every text with the spelling, so that others cost nothing.

    `find` searches for the pattern, only at the start of a text if it stands there.
    """

    sign: str
    find: Callable[[str], re.Match[str] | None]
    pattern: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str]
    example: tuple[str, str]
    counter: str


@lru_cache(maxsize=1 << 13)  # of one answer, for its key and for the comparison with a gold answer
def respelled(answer: str) -> str:
    """Return the answer in the spelling that the grammar reads, or as it is."""
    answer = answer if answer.isascii() else _ascii(answer)
    for sign, find, pattern, replacement, _, _ in SPELLINGS:
        if sign in answer and find(answer):
            answer = pattern.sub(replacement, answer)
    return answer


# Characters: letters of full width, full stops, fractions of one character, raised, lowered and circled numbers.
_ONE_CHARACTER: dict[int, str] = {0xFF0E: ".", 0xFF0F: "/", ord("。"): ".", ord("।"): "."}
_ONE_CHARACTER |= {first + 0xFEE0 + i: chr(first + i) for first in map(ord, "Aa") for i in range(26)}
_ONE_CHARACTER |= {ord(variant): letter for variant, letter in zip("ϵϕϑϱ", "εφθρ", strict=True)}
_ONE_CHARACTER |= {ord("∛"): r"\sqrt[3]", ord("∜"): r"\sqrt[4]", ord("∈"): r"\in ", ord("…"): r"\ldots "}
_ONE_CHARACTER |= {ord("①") + i: f"({i + 1})" for i in range(20)}
_ONE_CHARACTER |= {
    ord(sign): rf"\frac{{{unicodedata.normalize('NFKC', sign).replace('⁄', '}{')}}}" for sign in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒"
}
_RAISED, _LOWERED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "₀₁₂₃₄₅₆₇₈₉"
_TO_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SCRIPTS = re.compile(rf"(?P<raised>[{_RAISED}]+)|[{_LOWERED}]+")
_PERIOD_BAR = re.compile("(?<=[0-9.])([0-9])\u0305")


def _plain_digits(signs: str) -> str:
    return unicodedata.normalize("NFKC", signs).replace("−", "-")


def _ascii(answer: str) -> str:
    """Return digits of any script, fractions and scripts of one character in ASCII; invisible characters go."""
    answer = unicodedata.normalize("NFC", answer)
    answer = "".join(sign for sign in answer if sign.isascii() or unicodedata.category(sign) != "Cf")
    answer = "".join(str(unicodedata.decimal(sign, sign)) for sign in answer).translate(_ONE_CHARACTER)
    answer = _SCRIPTS.sub(lambda one: f"{'^' if one['raised'] else '_'}{{{_plain_digits(one[0])}}}", answer)
    return _PERIOD_BAR.sub(r"\\overline{\1}", answer)


_SCALES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALES |= {"万": 4, "萬": 4, "亿": 8, "億": 8}
# Functions as words before a letter, which would run into it: `sin x`, `max a`. `sec` and `min` are units there.
_WORD_FUNCTIONS = "arcsin arccos arctan sinh cosh tanh csch sin cos tan cot csc ln log exp sqrt gcd lcm"
# Short words would be read as products of letters.
_PROSE = "not no none all any for the if is are of to by when where with then than from only each every some"
_OUTSIDE_OF_TEXT = (
    r"(?P<group>\\(?:text[a-z]*|mathrm|mbox|hbox|operatorname)\s*\{[^{}]*\})|(?<=[\s$})\]])(?P<word>and|or)(?=[\s$\\])"
    rf"|(?<![A-Za-z\\])(?P<prose>{'|'.join(_PROSE.split())})(?=\s)"
    rf"|(?<![A-Za-z\\])(?P<function>{'|'.join(_WORD_FUNCTIONS.split())})(?=\s+[A-Za-z\\])"
)


def _outside_of_text(match: re.Match[str]) -> str:
    if word := match["word"] or match["prose"]:
        return rf"\text{{ {word} }}"
    return rf"\{match['function']}" if match["function"] else match["group"]


_LIST = re.compile(r"[^\W_]++(?:\s{0,9}(?:[,，、]|,?\s{1,9}and\s)\s{0,9}[^\W_]++)+")
_FORMULA = re.compile(r"(?=.*[0-9])(?:[^A-Za-z]|(?<![A-Za-z])[A-Za-z](?![A-Za-z]))+")  # a number, and no word


def _without_text(match: re.Match[str]) -> str:
    r"""Return a list or a formula as it stands outside of the `\text{}` around all of it."""
    return match[1] if _LIST.fullmatch(match[1]) or _FORMULA.fullmatch(match[1]) else match[0]


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
    letters = re.findall("[A-J]", match[0])
    return "".join(sorted(letters)) if len(set(letters)) == len(letters) else match[0]


def _joined_digits(match: re.Match[str]) -> str:
    return re.sub("['’_.，]", "", match[0])


def _period(match: re.Match[str]) -> str:
    """Return a period with its bar, which has to be seen three times, or a long one twice: 2.718281828... has none."""
    return rf"{match[1]}\overline{{{match[2] or match[3]}}}"


def _display(match: re.Match[str]) -> str:
    return match[2].replace("&", "")


def _brackets(match: re.Match[str]) -> str:
    """Return the names of brackets of a task that closes them, which are no sets."""
    return rf"\text{{{' '.join(unicodedata.name(sign) for sign in match[0] if not sign.isspace())}}}"


def _literal(match: re.Match[str]) -> str:
    """Return a string of a program with visible spaces: they count there."""
    return rf"\text{{{match[0].strip().replace(' ', '␣').replace(chr(34), chr(39))}}}"


def _molecule(match: re.Match[str]) -> str:
    """Return a formula of chemistry with its numbers lowered and its charges raised."""
    lowered = re.sub(
        r"(?<=[A-Za-z)])([0-9]+)", lambda one: f"_{one[0]}" if len(one[0]) == 1 else f"_{{{one[0]}}}", match[1]
    )
    return re.sub(r"\^([0-9]?[+-])", r"^{\1}", lowered.replace("->", r"\rightarrow ")).replace("_{_", "_{")


def _column(match: re.Match[str]) -> str:
    return rf"\begin{{{match[1]}}}{match[2].replace('&', chr(92) * 2)}\end{{{match[1]}}}"


def _rows(match: re.Match[str]) -> str:
    rows = [row.replace(",", "&") for row in re.findall(r"\[([^\[\]]*)\]", match[1])]
    return rf"\begin{{pmatrix}}{(chr(92) * 2).join(rows)}\end{{pmatrix}}"


def _unit(match: re.Match[str]) -> str:
    """Return a unit of several commands as one text, with its powers as raised digits; other text stays."""
    flat = re.sub(r"\\[dt]?frac\s*\{((?:[^{}]|\{[^{}]*\})*)\}\s*\{((?:[^{}]|\{[^{}]*\})*)\}", r"\1/\2", match[1])
    flat = re.sub(r"\\mu\s*(?:\\(?:text|mathrm)\s*\{)?\s*", "µ", flat.replace(r"\Omega", "Ω"))
    flat = re.sub(r"\\cdot(?![A-Za-z])", "·", re.sub(r"\\(?:mathrm|text|mbox|rm)(?![A-Za-z])", "", flat))
    flat = re.sub(r"\^\s*\{?(-?[1-9])\}?", lambda power: power[1].translate(_TO_RAISED), flat)
    flat = re.sub(r" ?([·/]) ?", r"\1", re.sub(r"(?:\\[ ,;:!]|[\s~{}])+", " ", flat)).strip(" ·")
    return rf"\text{{ {re.sub(' (?=[⁻¹²³⁴-⁹])', '', flat)}}}" if flat != "K" and readings_of(flat) else match[0]


def _system(match: re.Match[str]) -> str:
    """Return rows that each name a value as a list; pieces of a function stay."""
    rows = [row.replace("&", "").strip(" ,;.\n$") for row in match[1].split("\\\\")]
    is_list = all(re.fullmatch(r"[A-Za-z](?:_[0-9a-z])?\s*=[^=&]+", row) for row in rows)
    return ", ".join(rows) if is_list else match[0]


def _counted(match: re.Match[str]) -> str:
    """Return the number of choices or of arrangements as formulas write it."""
    name, n, k = (next(match[f"{part}{i}"] for i in ("", 2, 3, 4) if match[f"{part}{i}"]) for part in "fnk")
    if int(k) > int(n):  # a point
        return match[0]
    return rf"\binom{{{n}}}{{{k}}}" if "C" in name or name == "comb" else rf"\frac{{{n}!}}{{({n}-{k})!}}"


def _scaled(match: re.Match[str]) -> str:
    rest = (match[3] or "").removesuffix("}")
    return rf"\cdot 10^{{{_SCALES[match[1] or match[2]]}}}" + (rf"\text{{ {rest}}}" if rest else "")


def _number_words(match: re.Match[str]) -> str:
    """Return a number in words in digits, with its unit."""
    number = number_of(re.findall("[a-z]+", match[1].lower()))
    return match[0] if number is None else number + (rf"\text{{ {match[2]}}}" if match[2] else "")


def _word_list(match: re.Match[str]) -> str:
    """Return a list of names with commas alone; sentences stay."""
    parts = [part.strip() for part in re.split(r"[,;、，]|\band\b", re.sub(r"\\text\s*\{|[]['\"{}]", " ", match[1]))]
    parts = [" ".join(part.split()) for part in parts if part]
    are_names = all(len(part) > 1 and len(part.split()) < 3 for part in parts)
    return ", ".join(parts) if len(parts) > 1 and are_names else match[0]


def _date(match: re.Match[str]) -> str:
    """Return a full date by its numbers, and the day or the year of a month behind its English name."""
    parts = {name[0]: value for name, value in match.groupdict().items() if value}
    year, month, day = (parts.get(part, "") for part in "ymd")
    number = int(month) if month.isdigit() else _MONTHS[month.casefold()]
    return (
        f"{year}-{number}-{int(day)}" if year and day else rf"\text{{{calendar.month_name[number]} {int(day or year)}}}"
    )


_MONTHS = {name[:length].casefold(): i for i, name in enumerate(calendar.month_name) if i for length in (3, 4, 9)}
_TABLE = files(__package__).joinpath("spellings.tsv").read_text("utf-8").splitlines()
_PARTS = {
    line.split("\t")[0][1:-1]: line.split("\t")[1] for line in _TABLE if line[:1] == "«" and line.count("\t") == 1
}
_PARTS |= {
    "FUNCTIONS": "|".join(_WORD_FUNCTIONS.split()),
    "CHOICE": CHOICE,
    "OUTSIDE": _OUTSIDE_OF_TEXT,
    "MONTH": f"(?i:{'|'.join(sorted(_MONTHS, key=len, reverse=True))})",
    "NUMBER": f"(?i:{'|'.join(sorted(WORDS, key=len, reverse=True))})(?![A-Za-z])",
    "UNIT": f"(?:percent|{UNIT_WORDS})",
}


def _row(line: str) -> Spelling:
    sign, pattern, replacement, example, read_as, counter = line.split("\t")
    for name, part in _PARTS.items():
        pattern = pattern.replace(f"«{name}»", part)
    function = globals().get(f"_{replacement[1:]}") if replacement.startswith("@") else None
    compiled = re.compile(pattern, re.DOTALL)
    find = compiled.match if pattern[0] == "^" else compiled.search
    return Spelling(sign, find, compiled, function or replacement, (example, read_as), counter)


SPELLINGS = tuple(_row(line) for line in _TABLE if line.count("\t") == 5)
