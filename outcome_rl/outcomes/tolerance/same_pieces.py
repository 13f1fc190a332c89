r"""Functions in pieces, whose pieces may come in any order."""

import re

from outcome_rl.outcomes.keys import canonical_text

_CASES = re.compile(r"(?:(?P<label>[A-Za-z]\([a-z]\)|[a-z])=)?\\begin\{cases\}(?P<body>.*)\\end\{cases\}")
_ROW_END = re.compile(r"\\\\(?:\[[^\]]*\])?")
_IF = re.compile(r"^(?:\\text\{ ?(?:if|for|when|where),? ?\}|,)+|(?:\\text\{ ?,? ?\})+$")


def same_pieces(gold: str, answer: str) -> bool:
    """Return whether two functions have the same pieces under the same conditions.

    Args:
        gold, answer: plain LaTeX.
    """
    pieces = [_pieces(text) for text in (gold, answer)]
    return bool(pieces[0]) and pieces[0] == pieces[1]


def _pieces(text: str) -> frozenset[tuple[str, str]]:
    """Return value and condition of each piece as canonical texts, none of anything else."""
    cases = _CASES.fullmatch(text)
    rows = [row.strip().rstrip(",;.") for row in _ROW_END.split(cases["body"])] if cases else []
    cells = [row.split("&") for row in rows if row]
    if not cells or any(len(row) != 2 for row in cells):
        return frozenset()
    return frozenset(
        (canonical_text(value.strip(" ,")), canonical_text(_IF.sub("", condition.strip()).strip(" ,")))
        for value, condition in cells
    )
