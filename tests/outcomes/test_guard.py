"""No text raises: each name of the lexer with 0 to 3 arguments at each position, runs of each class of characters."""

import itertools
import logging
import time
import unicodedata

import pytest

from outcome_rl import OutcomeMatcher, outcome_key
from outcome_rl.outcomes import keys
from outcome_rl.outcomes.canonical import lexer, parser
from outcome_rl.outcomes.tolerance import contradicts, within_tolerance

NAMES = sorted(
    {*lexer.FUNCTION_NAMES, *lexer.CALLED, *lexer.UNREAD, *lexer.GREEK, *lexer.BARE}
    | {name.lstrip("\\") for name in (*parser.FACTOR_COMMANDS, *lexer.BEFORE_NUMBERS)}
)
ARGUMENTS = ("()", "(3)", "(3,2)", "(x,2,y)", "{3}", "{3}{2}", "[3]{2}", "", " 3", r"\{3,2\}", "^2(3)", "_2(3)")
POSITIONS = ("%s", r"\%s", r"\text{%s}", r"\operatorname{%s}")
PLACES = ("%s", r"x=\frac{2 %s^2}{3}")


@pytest.mark.parametrize("form", POSITIONS)
def test_every_name_with_any_arguments_has_a_key(form: str, caplog: pytest.LogCaptureFixture) -> None:
    for name, arguments, place in itertools.product(NAMES, ARGUMENTS, PLACES):
        text = place % (form % name + arguments)
        assert isinstance(outcome_key(text), int)
    assert caplog.records == []


FORMULAS = (
    r"x_1^2=\frac{2 y_{n+1}}{3}", "f'(x_2,3)_1 == |y|!",
    r"\sqrt[3]{a_b}\cdot\log_2(x)\leq\binom{n}{2}_k", r"\{x_i\in[1,2)\}",
)  # fmt: skip


def test_a_formula_cut_anywhere_or_without_a_part_has_a_key(caplog: pytest.LogCaptureFixture) -> None:
    for text in FORMULAS:
        for start, end in itertools.combinations(range(len(text) + 1), 2):
            assert isinstance(outcome_key(text[start:end]), int)
            assert isinstance(outcome_key(text[:start] + text[end:]), int)
    assert caplog.records == []


# A character of each category of Unicode, and each sign of ASCII.
CATEGORIES = [
    "Lu", "Ll", "Lo", "Lm", "Mn", "Mc", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Po", "Sm", "Sc", "So", "Zs", "Cf",
]  # fmt: skip
SIGNS = [chr(code) for code in range(32, 127)]
SIGNS += [next(chr(c) for c in range(128, 0x3000) if unicodedata.category(chr(c)) == kind) for kind in CATEGORIES]


@pytest.mark.parametrize("length", [999, 100_000])
def test_runs_of_one_sign_have_keys_in_no_time(length: int, caplog: pytest.LogCaptureFixture) -> None:
    for load in (within_tolerance, contradicts):  # tables are read at first use
        load("12", "5 apples")
    for sign in SIGNS:
        start = time.process_time()  # of this process alone: other tests run beside it
        for text in (sign * length, "1" + sign * (length - 2) + "x"):
            keys.canonical_text(text)
            for compare in (within_tolerance, contradicts):
                compare("12", text)
                compare(text, "12")
        assert time.process_time() - start < 0.5, (sign, length)
    assert caplog.records == []


def test_a_text_that_raises_equals_only_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(answer: str) -> str:
        raise RecursionError("too deep")

    keys.by_grammar.cache_clear()
    monkeypatch.setattr(keys, "plain_text", broken)
    with caplog.at_level(logging.WARNING), OutcomeMatcher() as matcher:
        outcomes = matcher.classify(["q"] * 3, [r"\boxed{x+1}", r"\boxed{x+1}", r"\boxed{x+2}"], ["x+1"] * 3)
    keys.by_grammar.cache_clear()
    assert outcomes.correct.tolist() == [True, True, False]
    assert outcomes.keys[0] == outcomes.keys[1] != outcomes.keys[2] != 0
    reports = [record.getMessage() for record in caplog.records if record.name.endswith("guard")]
    assert sum("'x+1'" in report for report in reports) == 1  # once for each text
