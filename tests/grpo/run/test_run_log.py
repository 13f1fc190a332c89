"""Logs of a resumed run equal those of an uninterrupted one, or the run is refused and nothing is lost."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from written_runs import evaluation

from outcome_rl.files.run_rows import STREAMS, read_stream
from outcome_rl.grpo.run.run_log import Counted, RunLog

METRICS = [{"step": step, "outcomes/correct_rate": step / 10, "é": 1} for step in range(1, 6)]
EVALUATIONS = [evaluation(step, name, 0.5, 1.0) for step in (0, 2, 4) for name in ("a", "b")]


Rows = dict[str, Counted]


def write(run_dir: Path, first: int = 1, last: int = 5, counted: Rows | None = None) -> Rows:
    """Log steps, each with its checkpoint before its evaluations; return what the last checkpoint counts."""
    log, made = RunLog(run_dir, step=first - 1, counted=counted), Rows()
    for step in range(first - (counted is None), last + 1):
        for row in METRICS[max(step - 1, 0) : step]:
            log.append("metrics", row)
            log.append_samples([row, row])
            assert log.rows("metrics")[-1] == row  # flushed, for a reader that follows the file
        made = log.counted()
        done = {row["dataset"] for row in log.rows("evaluations") if row["step"] == step}
        for row in EVALUATIONS:
            if row["step"] == step and row["dataset"] not in done:
                log.append("evaluations", row)
    log.close()
    return made


def contents(run_dir: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run_dir.iterdir()}


@pytest.mark.parametrize("step", range(6))
@pytest.mark.parametrize("cut", [0, 1, 5, 70])
def test_a_run_that_continues_from_a_checkpoint_ends_with_the_same_bytes(step: int, cut: int, tmp_path: Path) -> None:
    """Whatever was logged after it, the end cut short or not."""
    write(tmp_path / "whole")
    counted = write(tmp_path / "stopped", last=step)
    with_more = write(tmp_path / "stopped", first=step + 1, counted=counted) if step < 5 else counted
    assert {*with_more} == {*STREAMS}
    for path in (tmp_path / "stopped").iterdir():
        keep = sum(len(line) for line in path.read_bytes().splitlines(keepends=True)[: counted[path.stem]["rows"]])
        path.write_bytes(path.read_bytes()[: max(keep, path.stat().st_size - cut)])
    RunLog(tmp_path / "stopped", step=step, counted=counted).close()
    kept = read_stream(tmp_path / "stopped", "evaluations")
    assert max((row["step"] for row in kept), default=0) <= step
    write(tmp_path / "stopped", first=step + 1, counted=counted)
    if step == 5 or not cut:
        assert {row["step"] for row in kept} == {row["step"] for row in EVALUATIONS if row["step"] <= step}
    done = {(row["step"], row["dataset"]) for row in read_stream(tmp_path / "stopped", "evaluations")}
    missing = {(row["step"], row["dataset"]) for row in EVALUATIONS} - done
    assert {at for at, _ in missing} <= {step}  # the trainer evaluates these again
    if not missing:
        assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")


DAMAGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "the last row lost": lambda lines: lines[:-1],
    "all lost": lambda lines: [],
    "the last row cut short": lambda lines: [*lines[:-1], lines[-1][:-1]],
    "one lost": lambda lines: [lines[0], *lines[2:]],
    "doubled": lambda lines: [lines[0], *lines],
    "swapped": lambda lines: [lines[-1], *lines[1:-1], lines[0]],
    "changed": lambda lines: [lines[0].replace(b"1", b"2"), *lines[1:]],
}


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_rows_that_a_checkpoint_counts_are_found_or_missed(stream: str, damage: str, tmp_path: Path) -> None:
    counted, path = write(tmp_path), tmp_path / f"{stream}.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)[: counted[stream]["rows"]]
    path.write_bytes(b"".join(DAMAGES[damage](lines)))
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=f"{stream}.jsonl .*checkpoint of step 5 counts.*Restore the file") as refusal:
        RunLog(tmp_path, step=5, counted=counted)
    assert "\n" not in str(refusal.value)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("stream", STREAMS)
def test_a_doubled_last_row_is_dropped(stream: str, tmp_path: Path) -> None:
    """Also of a checkpoint after the evaluations of its step, as at the best step."""
    log = RunLog(tmp_path, step=4, counted=write(tmp_path, last=4))
    counted = log.counted()
    log.close()
    before = contents(tmp_path)
    path = tmp_path / f"{stream}.jsonl"
    path.write_bytes(before[path.name] + before[path.name].splitlines(keepends=True)[-1])
    RunLog(tmp_path, step=4, counted=counted).close()
    assert contents(tmp_path) == before


@pytest.mark.parametrize("rows", [[METRICS[0]] * 2, METRICS[1::-1], [{"no step": 1}]])
def test_steps_ascend(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match=r"metrics.jsonl, row \d has step .*restore the file"):
        read_stream(tmp_path, "metrics")
