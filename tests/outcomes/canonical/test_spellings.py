"""The table of spellings: each row changes its example, and leaves its counter-example alone."""

import pytest
from tables import cases

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
def test_a_row_is_found_where_its_pattern_is(row: Spelling) -> None:
    texts = [text for one in SPELLINGS for text in (*one.example, one.counter)]
    assert [bool(row.find(text)) for text in texts] == [bool(row.pattern.search(text)) for text in texts]


@ROWS
def test_both_spellings_of_a_row_have_one_key_because_of_it(row: Spelling, monkeypatch: pytest.MonkeyPatch) -> None:
    assert equivalent(*row.example)
    assert respelled(row.example[0]) == respelled(row.example[1])
    before = respelled(row.example[0])
    monkeypatch.setattr(spellings, "SPELLINGS", tuple(one for one in SPELLINGS if one != row))
    assert respelled.__wrapped__(row.example[0]) != before


@pytest.mark.parametrize(("decorated", "plain"), cases(__file__, "signs around"))
def test_signs_around_a_value_leave(decorated: str, plain: str) -> None:
    assert equivalent(decorated, plain)


@pytest.mark.parametrize(("a", "b"), cases(__file__, "signs that stay"))
def test_signs_that_mean_something_stay(a: str, b: str) -> None:
    assert respelled(a) != respelled(b)


@pytest.mark.parametrize(("answer", "result"), cases(__file__, "respelled"))
def test_respelled(answer: str, result: str) -> None:
    assert respelled(answer) == result
