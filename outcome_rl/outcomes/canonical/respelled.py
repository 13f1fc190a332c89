r"""Rewrite notations that say the same in other signs: parameters, systems of values, brackets turned away, colours.

Each rule matches a complete part of an answer, and leaves every text alone that holds more than the rule understands.
"""

import re

_COLOUR = re.compile(r"\\(?:text)?color\s*\{\s*[a-zA-Z]+\s*\}")
_SCIENTIFIC = re.compile(r"(?<=[0-9]) ?[xX✕✖] ?(?=10\s*\^)")

_BODY = r"(?P<body>(?:(?!\\begin|\\end|\\text).)*)"
_CASES = re.compile(rf"\\begin\s*\{{cases\}}{_BODY}\\end\s*\{{cases\}}", re.DOTALL)
_LEFT_BRACE = re.compile(
    r"\\left\s*\\(?:\{|lbrace)\s*\\begin\s*\{(?P<kind>array|aligned|gathered|matrix)\}(?:\s*\{[lcr]+\})?"
    rf"{_BODY}\\end\s*\{{(?P=kind)\}}\s*\\right\s*\.",
    re.DOTALL,
)
_LABELLED_ROW = re.compile(r"\s*([A-Za-z]\s*&?\s*=\s*&?[^=<>&,;]+?)\s*[,;.]?\s*")
_ORDER = re.compile(r"[<>≤≥]|\\(?:le|ge|lt|gt)(?!ft(?![A-Za-z]))")  # no `\left`

_END = r"[^\[\](){},;|\s]+(?: [^\[\](){},;|\s]+)*"
_TURNED_ONE = rf"(?:\\left)?\s*[\[\]]\s*{_END}\s*[,;]\s*{_END}\s*(?:\\right)?\s*[\[\]]"
_TURNED = re.compile(rf"\$?\s*{_TURNED_ONE}(?:\s*(?:\\cup|∪)\s*{_TURNED_ONE})*\s*\$?")

_Z = r"(?P<domain>\\mathbb\s*\{?\s*[ZNQR]\s*\}?|\\[ZN](?![A-Za-z])|[ℤℕ]|(?:\\mathbf\s*\{?\s*)?Z\b\s*\}?)"
_JOINT = r"(?:\s|\\[,;:! ]|\\q?quad(?![A-Za-z])|[,;$])*+"
_WHERE = r"(?:(?:,\s*)?(?:where|for|with)(?:\s+(?:any|all|every|each))?\s*+)"
_DECLARED = re.compile(
    rf"{_JOINT}(?:\\text\s*\{{\s*{_WHERE}\}}|{_WHERE}|\(\s*(?P<bracket>))?{_JOINT}"
    rf"(?P<name>(?<![A-Za-z\\])[a-z])\s*(?:\\in(?![A-Za-z])|∈)\s*{_Z}\s*(?(bracket)\))\s*\$?\.?\s*"
)
_INTEGERS = re.compile(
    rf"{_JOINT}(?:\\text\s*\{{\s*)?{_WHERE}(?:any\s+|an\s+|all\s+|some\s+)?integers?\s*\}}?{_JOINT}(?P<before>[a-z])\s*\$?\.?\s*"
    rf"|{_JOINT}(?:(?:\\text\s*\{{\s*)?{_WHERE}\}}?{_JOINT})?(?P<after>(?<![A-Za-z\\])[a-z]){_JOINT}(?:\\text\s*\{{)?\s*is\s+an(?:y)?\s+integer\s*\}}?\s*\$?\.?\s*"
)
_ROMAN = r"(?:I{1,3}|I?[VX]|VI{1,3}|XI{1,2})"
_STATEMENTS = re.compile(
    rf"\$?\s*(?:\\text(?:bf)?\s*\{{\s*)?({_ROMAN}(?:(?:\s*,\s*|\s*,?\s+and\s+){_ROMAN})*)(\s+only)?\s*\.?\s*\}}?\s*\$?"
)
_SIGNS = re.compile(
    r"\b(?:and|only)\b|color|10\s*\^|\\begin|[\[\]]|\\in(?![A-Za-z])|∈|integer|\\(?:text|mathrm|mbox)|≡|\\equiv"
    r"|\\not|[0-9] ?e\s*[-+]|-(?:st|nd|rd|th)|tg|cosec|\\mathbf\s*\{\s*R|\\operatorname"
)
_ALL_TEXT = re.compile(r"\s*\$?\s*\\(?:text(?:bf|it|rm)?|mathrm|mbox)\s*\{\s*((?:[^{}\\$]|\\%)*?)\s*\}\s*\.?\s*\$?\s*")
_QUANTITY = re.compile(r"(-?[0-9][0-9.,/]*)(?: ?(st|nd|rd|th)| ([A-Za-z][A-Za-z ]*))?")
_LIST = re.compile(r"[^\W_]+(?:\s*(?:,|,?\s+and\s)\s*[^\W_]+)+")
_FORMULA = re.compile(r"(?=.*[0-9])(?:[^A-Za-z]|(?<![A-Za-z])[A-Za-z](?![A-Za-z]))+")  # a number, and no word
_RAISED_TEXT = re.compile(r"\\textsuperscript\s*\{([^{}]*)\}|(?<=[0-9])-(st|nd|rd|th)(?![A-Za-z])")
_NOT_EQUAL = re.compile(r"\\not\s*=")
_EULER = re.compile(r"(?<=[0-9]) ?e(?=\s+[-+]|\s*[-+]\s)")  # no power of ten, as in `2e-3`
# `\in \mathbf{Z}`, `\in R`; the answer `\mathbf{R}`.
_DOMAIN = re.compile(
    r"(?P<in>(?:\\in(?![A-Za-z])|∈)\s*)(?:\\math(?:bf|rm)\s*\{\s*(?P<bold>[NZQRC])\s*\}|(?P<bare>[NQR])(?![A-Za-z0-9_^'({\\]))"
    r"|^(?P<all>\s*\$?\s*)\\mathbf\s*\{\s*R\s*\}(?=[\s.$]*$)"
)
# Names of functions in Chinese, French and Russian texts.
_ABROAD = {"tg": "tan", "ctg": "cot", "cotg": "cot", "arctg": "arctan", "arcctg": "arccot", "cosec": "csc"}
_AT_HOME = "arcsin|arccos|arctan|arccot|sinh|cosh|tanh|coth|sin|cos|tan|cot|csc|ln|log|lg|exp"
_FUNCTION = re.compile(
    rf"\\(?:(?:operatorname\*?|mathrm)\s*\{{\s*({'|'.join(_ABROAD)}|{_AT_HOME})\s*\}}|({'|'.join(_ABROAD)})(?![A-Za-z]))"
)
_MODULUS = re.compile(
    r"(?:\\(?:text|mathrm|operatorname)\s*\{\s*)?\(?\s*(?:\\(?:text|mathrm|operatorname)\s*\{\s*\(?\s*mod\s*\}|\\b?mod(?![A-Za-z])"
    r"|(?<![A-Za-z\\])mod)(?:\s|~|\\[ ,;:])*(?:\{\s*([0-9]+)\s*\}|([0-9]+))\s*\)?\s*\}?\s*(?=[.$\s]*$)"
)


def respelled(answer: str) -> str:
    """Return the answer in the notation that the grammar reads, or as it is."""
    if _SIGNS.search(answer) is None:
        return answer
    if numerals := _STATEMENTS.fullmatch(answer):  # a list of what holds is complete without `only`
        return re.sub(r"\s*,?\s+and\s+", ", ", numerals[1])
    answer = _SCIENTIFIC.sub(r" \\times ", _COLOUR.sub("", answer))
    answer = _FUNCTION.sub(_function, _NOT_EQUAL.sub(r"\\neq ", answer))
    answer = _DOMAIN.sub(_blackboard, answer)
    answer = _EULER.sub(r" \\cdot e ", _RAISED_TEXT.sub(_raised_text, answer))
    if text := _ALL_TEXT.fullmatch(answer):
        return _outside_of_text(text[1]) or answer
    if "≡" in answer or r"\equiv" in answer:
        return _MODULUS.sub(lambda modulus: rf"\pmod{{{modulus[1] or modulus[2]}}}", answer)
    for system in (_CASES, _LEFT_BRACE):
        if (match := system.fullmatch(answer.strip().strip("$"))) and (values := _values(match["body"])):
            return values
    if _TURNED.fullmatch(answer):
        return _turned(answer)
    return _with_parameter(answer)


def _function(match: re.Match[str]) -> str:
    name = match[1] or match[2]
    return rf"\{_ABROAD.get(name, name)} "


def _blackboard(match: re.Match[str]) -> str:
    return rf"{match['in'] or match['all'] or ''}\mathbb{{{match['bold'] or match['bare'] or 'R'}}}"


def _raised_text(match: re.Match[str]) -> str:
    return match[2] or rf"^{{\text{{{match[1]}}}}}"


def _outside_of_text(inside: str) -> str | None:
    r"""Return a list or a number with its unit, as it stands outside of the `\text{}` around all of it; else None."""
    if quantity := _QUANTITY.fullmatch(inside):
        number, ordinal, unit = quantity.groups()
        return rf"{number}\text{{ {unit}}}" if unit else f"{number}{ordinal or ''}"
    return inside if _LIST.fullmatch(inside) or _FORMULA.fullmatch(inside) else None


def _values(body: str) -> str | None:
    """Return `x = 1, y = 2` for the rows of a system that gives each variable a value."""
    rows = [row for row in re.split(r"\\\\|\\cr", body) if row.strip()]
    labelled = [_LABELLED_ROW.fullmatch(row) for row in rows]
    values = [row[1].replace("&", "") for row in labelled if row is not None]
    return ", ".join(values) if len(values) == len(rows) > 1 else None


def _turned(answer: str) -> str:
    """Return intervals with a round bracket for one that is turned away: `]1, 2]` is `(1, 2]`."""
    signs, is_open = [], False
    for sign in answer:
        if sign in "[]":
            is_open = not is_open
            sign = sign if (sign == "[") == is_open else "(" if is_open else ")"
        signs.append(sign)
    return "".join(signs)


def _with_parameter(answer: str) -> str:
    """Return `2k, k \\in \\mathbb{Z}` for a value with its parameter in other words."""
    if _ORDER.search(answer):
        return answer
    for declaration in (_DECLARED, _INTEGERS):
        match = next((match for match in declaration.finditer(answer) if match.end() == len(answer)), None)
        if match is not None and answer[: match.start()].strip():
            groups = match.groupdict()
            name = groups.get("name") or groups.get("before") or groups.get("after")
            letter = next(
                (sign for sign in re.sub(r"\\[a-z]+", "", groups.get("domain") or "Z") if sign in "ZNQRℤℕ"), "Z"
            )
            letter = {"ℤ": "Z", "ℕ": "N"}.get(letter, letter)
            dollars = answer[: match.start()].count("$") % 2
            return f"{answer[: match.start()]}{'$' * dollars}, {name} \\in \\mathbb{{{letter}}}"
    return answer
