"""The comparisons of the plans on hard questions."""

from dataclasses import replace
from pathlib import Path

import pytest
from reproduce_records import QUESTIONS, records

from experiments.paper import hard_questions
from experiments.paper.base import Base
from experiments.paper.measures import Results
from experiments.paper.plan import FORGETTING, HARD_ESTIMATORS, Cell, Plan
from outcome_rl.files.jsonl import read_rows, write_rows
from outcome_rl.toy import DialectTask


@pytest.mark.parametrize(("plan", "count"), [(HARD_ESTIMATORS, 12), (FORGETTING, 18)], ids=lambda plan: str(plan)[:20])
def test_rows_are_of_the_plan(plan: Plan, count: int) -> None:
    rows = hard_questions.ROWS[plan.name]
    assert {row.left for row in rows} | {row.right for row in rows} <= {"base", *plan.methods}
    assert {row.left for row in rows} | {row.right for row in rows} >= {*plan.methods}
    assert {row.split for row in rows} == {*plan.splits}
    assert len(rows) == count
    assert all(0 < hard_questions.row_power(row, plan) <= 1 for row in rows)


def test_the_rows_of_most_interest_have_power() -> None:
    power = {
        row.left: hard_questions.row_power(row, HARD_ESTIMATORS)
        for row in hard_questions.ROWS[HARD_ESTIMATORS.name]
        if row.measure == "solved hard"
    }
    assert power["batch"] > power["maxrl+batch"] > power["pkpo"] > 0.8
    assert power["maxrl"] < 0.6


def test_rows_are_judged_on_their_split() -> None:
    found = Results(records(plan=replace(FORGETTING, test_freq=48)))
    verdicts = hard_questions.judged(found, hard_questions.ROWS[FORGETTING.name])
    assert [verdict.units for verdict in verdicts] == [10] * 18
    lines = hard_questions.verdict_table(found, hard_questions.ROWS[FORGETTING.name]).splitlines()
    assert len(lines) == 2 + 18
    assert lines[2].startswith("| Batch - GRPO | solved hard, hard | +0.120 | ")
    run = found.runs(Cell(130, "strong", "mixed"), "batch")[0]
    assert hard_questions.solved_hard(run) == sum(run["questions_solved"][: QUESTIONS // 2]) / (QUESTIONS // 2)


def test_a_mixed_set_begins_with_its_hard_questions(tmp_path: Path) -> None:
    plan = replace(FORGETTING, instances=(3,), train_questions=8)
    rows = DialectTask(3).problems("train", 40)
    write_rows(tmp_path / "data" / "3" / "strong-hard.jsonl", rows[2:40:6])
    mixed = list(read_rows(Base(plan, tmp_path).training_file(Cell(3, "strong", "mixed"))))
    assert mixed[:4] == rows[2:22:6]
    assert len({row["id"] for row in mixed}) == len(mixed) == 8
    assert all(row in rows for row in mixed)
