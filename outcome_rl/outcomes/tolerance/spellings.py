r"""Other spellings of the same mathematics, which keys leave apart: `(0, 1) U (2, 3)`, `C_5^2`, `[[1, 2], [3, 4]]`."""

import re
from collections.abc import Callable
from itertools import permutations

_UNIT_VECTOR = re.compile(
    r"\\(?:mathbf|hat|vec|boldsymbol|bm)\s*\{?\s*(?:\\(?:mathbf|boldsymbol|bm)\s*\{?\s*)?\\?([ijk])(?:math)?\s*\}{0,2}"
)
_ROWS = re.compile(r"\[\s*(\[[^\[\]]+\](?:\s*,\s*\[[^\[\]]+\])+)\s*\]")
_ROW = re.compile(r"\[([^\[\]]+)\]")
_TRANSPOSED = re.compile(
    r"^(\$?(?:\\left)?[(\[][^()\[\];]+,[^()\[\];]+[)\]])\s*\^\s*\{?\s*(?:T|\\top|\\intercal)\s*\}?(\$?)$"
)
_CIS = re.compile(
    r"\\(?:operatorname|text|mathrm)\s*\{\s*cis\s*\}\s*(?:\\left)?"
    r"(\([^()]*\)|\{[^{}]*\}|\\d?frac\{[^{}]*\}\{[^{}]*\}|[^\s()+$-]+)"
)
_NUMBER = r"\{?(\d{1,4})\}?"


def _chosen(match: re.Match[str]) -> str:
    n, k = map(int, match.groups())
    return rf"\binom{{{n}}}{{{k}}}" if n >= k and n > 1 else match[0]


def _arranged(match: re.Match[str]) -> str:
    n, k = map(int, match.groups())
    return rf"\frac{{{n}!}}{{{n - k}!}}" if n >= k > 0 and n > 1 else match[0]


def _matrix(match: re.Match[str]) -> str:
    rows = [row.split(",") for row in _ROW.findall(match[1])]
    if len({len(row) for row in rows}) > 1:
        return match[0]
    return r"\begin{pmatrix}" + r"\\".join("&".join(row) for row in rows) + r"\end{pmatrix}"


_SPELLINGS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"(?<=[)\]])\s*U\s*(?=[(\[])"), r" \\cup "),
    # Numbers of choices and arrangements, as texts from China, France and calculators write them.
    (re.compile(rf"(?:\{{\s*\}}|(?<![0-9A-Za-z}}]))\s*_{_NUMBER}\s*C\s*_{_NUMBER}"), _chosen),
    (re.compile(rf"(?<![A-Za-z\\])C_{_NUMBER}\s*\^{_NUMBER}"), _chosen),
    (re.compile(rf"(?<![A-Za-z\\])A_{_NUMBER}\s*\^{_NUMBER}"), _arranged),
    # Code: Python's modules, and what SymPy prints.
    (re.compile(r"(?<![A-Za-z])(?:np|numpy|math|sympy|sp)\.(?=[a-z])"), ""),
    (re.compile(r"(?<![A-Za-z])Rational\((-?\d+), ?(\d+)\)"), r"(\1/\2)"),
    (re.compile(r"(?<=[0-9*])\s*I(?![A-Za-z_^(0-9])"), " i"),
    (_ROWS, _matrix),
    (_TRANSPOSED, r"\1\2"),  # a column is a tuple
    (_CIS, r"(\\cos \1 + i \\sin \1)"),
    (re.compile(r"(?<=[0-9])\s*(?:\\text\s*\{\s*)?per ?cent\b\s*\}?"), r"\\%"),
    (re.compile(r"^\s*(?:\\text\s*\{\s*)?(\d+) in (\d+)\s*\}?\s*$"), r"\1/\2"),
    # Sets of the values of a formula.
    (re.compile(r"\\\{\s*([a-z])\s*(?:\\mid(?![a-z])|\||:)\s*\1\s*=\s*"), r"\\{"),
    (
        re.compile(
            r"^\s*\$?\s*\\\{([^{}|:]+?)\s*(?:\\mid(?![a-z])|\||:|,)\s*([a-z]\s*(?:\\in(?![a-z])|∈)\s*\\mathbb\s*\{?\s*Z\s*\}?)"
            r"\s*\\\}\s*\$?\s*$"
        ),
        r"\1, \2",
    ),
    (re.compile(r"^\s*\$?\s*\{\s*\}\s*\$?\s*$"), r"\\emptyset"),
)


_CHAIN = re.compile(r"\s*\$?\s*((?:[A-Za-z]\s*=\s*){2,})([^=<>$]+)\$?\s*")
_PERMUTED = re.compile(
    r"\s*\$?\s*(?:\([^()=]*\)\s*=\s*)?\(([^()]+)\)\s*\$?[ ,]*(?:\\(?:text|mathrm)\s*\{)?\s*"
    r"(?:and|or)\s+(?:all\s+)?(?:its\s+|their\s+)?(cyclic\s+)?permutations\s*\.?\}?\s*\$?\s*"
)
_MAX_PERMUTED = 4


def respelled(answer: str) -> str:
    """Return an answer in the spelling that keys read, or as it is."""
    for pattern, spelling in _SPELLINGS:
        answer = pattern.sub(spelling, answer)
    if chain := _CHAIN.fullmatch(answer):  # `a = b = 1`
        names = re.findall("[A-Za-z]", chain[1])
        answer = f"({', '.join(names)}) = ({', '.join([chain[2].strip()] * len(names))})"
    if permuted := _PERMUTED.fullmatch(answer):
        answer = _permutations(permuted[1].split(","), bool(permuted[2])) or answer
    return _components(answer)


def _permutations(items: list[str], is_cyclic: bool) -> str:
    if len(items) > _MAX_PERMUTED:
        return ""
    cycles = [tuple(items[i:] + items[:i]) for i in range(len(items))]
    orders = dict.fromkeys(cycles if is_cyclic else permutations(items))
    return ", ".join(f"({', '.join(order)})" for order in orders)


def _components(answer: str) -> str:
    r"""Return `(3, -2, 1)` for `3\mathbf{i} - 2\mathbf{j} + \mathbf{k}`: in turn one unit vector is 1, the others 0."""
    names = set(_UNIT_VECTOR.findall(answer))
    if len(names) < 2:
        return answer
    formula = answer.strip(" $").rpartition("=")[2]
    return f"({', '.join(_component(formula, name) for name in ('ijk' if 'k' in names else 'ij'))})"


def _component(formula: str, name: str) -> str:
    def number(unit: re.Match[str]) -> str:
        before = formula[: unit.start()].rstrip()[-1:]
        times = r" \cdot " if before.isalnum() or before in (")", "}") else ""
        return f"{times}{int(unit[1] == name)}"

    return _UNIT_VECTOR.sub(number, formula)
