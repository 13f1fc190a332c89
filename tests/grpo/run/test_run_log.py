"""Log of a resumed run equal those of an uninterrupted one."""

import json
from pathlib import Path
from typing import Any

import pytest

from outcome_rl.grpo.run.run_log import STREAMS, RunLog

METRICS: list[dict[str, Any]] = [
    {"step": step, "outcomes/correct_rate": step / 10, "note": "é"} for step in range(1, 6)
]


def write(run_dir: Path, rows: list[dict[str, Any]], last_step: int) -> None:
    records = RunLog(run_dir, last_step=last_step)
    for row in rows:
        records.append("metrics", row)
    records.close()


def test_rows_come_back(tmp_path: Path) -> None:
    records = RunLog(tmp_path / "new", last_step=-1)
    assert records.rows("metrics") == []
    for row in METRICS:
        records.append("metrics", row)
        assert records.rows("metrics")[-1] == row  # flushed, for a reader that follows the file
    assert records.rows("samples") == []
    records.close()
    assert {path.name for path in (tmp_path / "new").iterdir()} == {f"{stream}.jsonl" for stream in STREAMS}


@pytest.mark.parametrize("last_step", [-1, 0, 3, 5, 9])
def test_rows_after_the_last_step_are_dropped(last_step: int, tmp_path: Path) -> None:
    write(tmp_path, METRICS, -1)
    write(tmp_path, METRICS[max(last_step, 0) :], last_step)
    whole = "".join(json.dumps(row) + "\n" for row in METRICS)
    assert (tmp_path / "metrics.jsonl").read_text() == whole


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_half_written_last_line_is_dropped(cut: int, tmp_path: Path) -> None:
    write(tmp_path, METRICS, -1)
    path = tmp_path / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    write(tmp_path, METRICS[4:], 4)
    assert path.read_bytes() == whole


def test_several_rows_of_a_step_stay_together(tmp_path: Path) -> None:
    rows = [{"step": 0, "dataset": "a"}, {"step": 0, "dataset": "b"}, {"step": 2, "dataset": "a"}]
    write(tmp_path, rows, -1)
    write(tmp_path, [], 0)
    assert [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == rows[:2]
