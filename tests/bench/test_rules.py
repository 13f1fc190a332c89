"""The table of rules: a rule that is switched off is off in every module, and back afterwards."""

import json
from pathlib import Path

import numpy as np
import pytest

from bench import rules
from outcome_rl import equivalent
from outcome_rl.outcomes.canonical import spellings

OFF = [(spellings.SPELLINGS, ())]


def test_a_rule_is_off_everywhere_and_back_afterwards() -> None:
    assert equivalent("2**10", "1024")
    with rules.switched_off(OFF):
        assert not equivalent("2**10", "1024")
    assert equivalent("2**10", "1024")


def test_every_rule_names_a_function_that_other_modules_hold() -> None:
    for name, changes in rules.rules().items():
        with rules.switched_off(changes):
            held = [id(value) for module in rules.library() for value in vars(module).values()]
            assert all(id(rule) not in held for rule, _ in changes), name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "generations/a.jsonl": [
            {"question_id": 1, "gold": "1024", "samples": [{"answer": "2**10"}, {"answer": "7"}, {"answer": None}] * 2}
        ],
        "pairs/a.jsonl": [
            {"gold": "1024", "pred": "2**10", "expected": True},
            {"gold": "20", "pred": "2**10", "expected": False, "suspect": True},
        ],
        "answers/give.jsonl": [
            {"response": r"\boxed{2**10}", "gold": "22", "should_be_equal": False, "class": "words"},
            {"response": "nothing", "gold": "22", "should_be_equal": True, "class": "words", "should_extract": "22"},
        ],
    }
    for name, rows in files.items():
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return tmp_path


def test_rows_are_distinct_and_labelled(folder: Path) -> None:
    assert rules.generated(folder) == [rules.Case("2**10", "1024")]
    assert rules.labelled(folder) == [rules.Case("2**10", "1024", True)]


def test_the_table_counts_what_a_rule_decides(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "rules", lambda: {"spellings": OFF})
    figures = rules.measure(folder)
    assert figures["all"]["pairs"] == {"rows": 1, "right": 1, "wrong_equal": 0}
    row = figures["rules"]["spellings"]
    assert (row["pairs"]["won"], row["pairs"]["lost"], row["pairs"]["rows"]) == (1, 0, [["2**10", "1024"]])
    assert "rows" not in rules.without_texts(figures)["rules"]["spellings"]["pairs"]
    assert "| spellings | 1 | 1 | 1 | 0 | 0 | 0 |" in rules.table(figures)


def test_reports_are_right_if_correctness_and_key_are(folder: Path) -> None:
    assert "| words | 2 | 1 | 0 |" in rules.report_table(folder)


def test_difference_counts_won_and_lost_rows() -> None:
    cases = [rules.Case("1", "1", True), rules.Case("1", "2", False)]
    keys = np.array([1, 2])
    row = rules.difference((cases, keys, np.array([True, True])), (cases, keys, np.array([False, False])))
    assert (row["won"], row["lost"]) == (1, 1)
