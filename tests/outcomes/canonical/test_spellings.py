"""The table of spellings: each row changes its example, and leaves its counter-example alone."""

import pytest

from outcome_rl import equivalent
from outcome_rl.outcomes.canonical import spellings
from outcome_rl.outcomes.canonical.spellings import SPELLINGS, Spelling, respelled

ROWS = pytest.mark.parametrize("row", SPELLINGS, ids=lambda row: row.example[0])


@ROWS
def test_a_row_changes_its_example_and_not_its_counter_example(row: Spelling) -> None:
    assert row.sign in row.example[0]
    assert row.pattern.sub(row.replacement, row.example[0]) == row.example[1]
    assert row.pattern.sub(row.replacement, row.counter) == row.counter


@ROWS
def test_both_spellings_of_a_row_have_one_key_because_of_it(row: Spelling, monkeypatch: pytest.MonkeyPatch) -> None:
    assert equivalent(*row.example)
    assert respelled(row.example[0]) == respelled(row.example[1])
    before = respelled(row.example[0])
    monkeypatch.setattr(spellings, "SPELLINGS", tuple(one for one in SPELLINGS if one != row))
    assert respelled(row.example[0]) != before


@pytest.mark.parametrize(
    ("decorated", "plain"),
    [
        ("𝟏𝟖", "18"),
        ("\u200e18\u200f", "18"),
        ("①", "1"),
    ],
)
def test_signs_around_a_value_leave(decorated: str, plain: str) -> None:
    assert equivalent(decorated, plain)


@pytest.mark.parametrize(("a", "b"), [("5°", "5"), ("△ABC", "ABC"), ("✅", "❌")])
def test_signs_that_mean_something_stay(a: str, b: str) -> None:
    assert respelled(a) != respelled(b)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (r"\beginpmatrix1\\2\endpmatrix", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"15\mboxcm^2", r"15\mbox{cm}^2"),
        (r"1\pm*sqrt(19)", r"1\pm sqrt(19)"),
        ("2*sqrt(5)", "2*sqrt(5)"),
        ("$1$ and $2$", r"$1$ \text{ and } $2$"),
        (r"\text{6 and 8}", r"6 \text{ and } 8"),
        ("sandy or", "sandy or"),
    ],
)
def test_respelled(answer: str, result: str) -> None:
    assert respelled(answer) == result
