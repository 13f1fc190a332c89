"""The plan that asks whether exploration on hard questions survives without forgetting."""

from dataclasses import replace
from pathlib import Path

from reproduce_records import QUESTIONS, records

from experiments.paper import forgetting
from experiments.paper.base import Base
from experiments.paper.measures import Results
from experiments.paper.plan import FORGETTING, Cell
from outcome_rl.files import read_rows, write_rows
from outcome_rl.toy import DialectTask


def test_rows_are_of_the_plan() -> None:
    assert {row.left for row in forgetting.ROWS} | {row.right for row in forgetting.ROWS} == {
        "base",
        *FORGETTING.methods,
    }
    assert {row.split for row in forgetting.ROWS} == {*FORGETTING.splits}
    assert len(forgetting.ROWS) == 18
    assert all(0 < forgetting.power(row) <= 1 for row in forgetting.ROWS)


def test_rows_are_judged_on_their_split() -> None:
    found = Results(records(plan=replace(FORGETTING, test_freq=48)))
    verdicts = forgetting.judged(found)
    assert [verdict.units for verdict in verdicts] == [10] * 18
    run = found.runs(Cell(130, "strong", "mixed"), "batch")[0]
    assert forgetting.solved_hard(run) == sum(run["questions_solved"][: QUESTIONS // 2]) / (QUESTIONS // 2)


def test_a_mixed_set_begins_with_its_hard_questions(tmp_path: Path) -> None:
    plan = replace(FORGETTING, instances=(3,), train_questions=8)
    rows = DialectTask(3).problems("train", 40)
    write_rows(tmp_path / "data" / "3" / "strong-hard.jsonl", rows[2:40:6])
    mixed = list(read_rows(Base(plan, tmp_path).training_file(Cell(3, "strong", "mixed"))))
    assert mixed[:4] == rows[2:22:6]
    assert len({row["id"] for row in mixed}) == len(mixed) == 8
    assert all(row in rows for row in mixed)
