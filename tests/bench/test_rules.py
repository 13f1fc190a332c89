"""The table of rules: a condition that is switched off is off in every module, and back afterwards."""

import json
from pathlib import Path

import pytest

from bench import probes, rules
from outcome_rl import equivalent


def test_a_condition_is_off_and_the_rules_are_back_afterwards() -> None:
    with probes.probed() as found:
        from outcome_rl.outcomes.keys import canonical_text

        power = next(number for number, probe in enumerate(found.all) if probe.text == "2**10")
        assert canonical_text("2**10") == "q:1024/1"
        assert found.held[power]
        found.off = power
        assert canonical_text("2**11") != "q:2048/1"  # a text that no cache holds
    assert equivalent("2**10", "1024")


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


def test_the_table_counts_what_a_condition_decides(folder: Path) -> None:
    figures = rules.measure(folder)
    assert figures["answers"] == {"pairs": 1, "reports": 2, "generations": 1}
    assert {"text": "2**10", "real": 1, "pairs": 1, "reports": 1} in figures["spellings"]
    assert figures["modules"]["spelling"]["real"] == 1
    assert "| `2**10` | 1 | 1 | 1 |" in rules.table(figures)


def test_won_and_lost_answers_are_counted(folder: Path) -> None:
    (row,) = [one for one in probes.decided(rules.all_cases(folder), None) if one.probe.text == "2**10"]
    assert (row.won, row.lost) == (1, 0)


def test_reports_are_right_if_correctness_and_key_are(folder: Path) -> None:
    assert "| words | 2 | 1 | 0 |" in rules.report_table(folder)
