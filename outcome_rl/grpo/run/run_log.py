"""Log of a run: metrics, evaluations and sample completions as JSON lines.

Every row has its step. Resuming from step N first drops the rows after N, so that an interrupted run ends with the
same rows as an uninterrupted one.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from outcome_rl.exploration.traces import sample_table
from outcome_rl.files.jsonl import append_rows, read_rows, write_rows
from outcome_rl.grpo.run.tracking import ID_FILE, Tracker

STREAMS = ("metrics", "evaluations", "samples")


def has_rows(run_dir: Path) -> bool:
    """Return whether a run has written rows into the folder."""
    paths = [run_dir / f"{stream}.jsonl" for stream in STREAMS]
    return any(path.exists() and path.stat().st_size for path in paths)


def set_aside(run_dir: Path) -> Path:
    """Move the rows of a run that cannot be continued into `abandoned-1`, `abandoned-2`, ...; return that folder."""
    number = 1
    while (run_dir / f"abandoned-{number}").exists():
        number += 1
    place = run_dir / f"abandoned-{number}"
    place.mkdir()
    for name in (*(f"{stream}.jsonl" for stream in STREAMS), "tensorboard", ID_FILE):
        if (run_dir / name).exists():
            (run_dir / name).rename(place / name)
    return place


class RunLog:
    """Append-only streams `metrics.jsonl`, `evaluations.jsonl` and `samples.jsonl` in the run's folder."""

    def __init__(self, run_dir: Path | None, *, last_step: int, trackers: Sequence[Tracker] = ()) -> None:
        """Open the streams of a run whose first `last_step` steps are done.

        Args:
            run_dir: folder of the run; None, on ranks other than zero, writes nothing.
            last_step: rows of later steps are dropped.
            trackers: receive the numbers of metrics and evaluations and tables of samples too; closed with the files.

        Raises:
            ValueError: a row is damaged.
        """
        self._paths: dict[str, Path] = {}
        if run_dir is not None:
            run_dir.mkdir(parents=True, exist_ok=True)
            self._paths = {stream: run_dir / f"{stream}.jsonl" for stream in STREAMS}
        for path in self._paths.values():
            if path.exists():
                write_rows(path, _rows_until(path, last_step))
        self._files = {stream: append_rows(path) for stream, path in self._paths.items()}
        self._trackers = trackers

    def append(self, stream: str, row: Mapping[str, Any]) -> None:
        """Append one row of metrics or evaluations, which has its `step`, and flush it."""
        if self._files:
            self._write(stream, [row])
            numbers = _numbers(row)
            for tracker in self._trackers:
                tracker.log(numbers, row["step"])

    def append_samples(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append the sample completions of a step, and flush them; trackers with tables get one of them."""
        if self._files and rows:
            self._write("samples", rows)
            columns = {name: [row[name] for row in rows] for name in rows[0]}
            for tracker in self._trackers:
                if tracker.package:
                    tracker.log({"samples": sample_table(tracker.package, columns)}, rows[0]["step"])

    def _write(self, stream: str, rows: Sequence[Mapping[str, Any]]) -> None:
        file = self._files[stream]
        file.writelines(json.dumps(row).encode() + b"\n" for row in rows)
        file.flush()

    def rows(self, stream: str) -> list[dict[str, Any]]:
        """Return every row of a stream."""
        return list(read_rows(self._paths[stream])) if stream in self._paths else []

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        for tracker in self._trackers:
            tracker.close()


def _rows_until(path: Path, last_step: int) -> Iterator[dict[str, Any]]:
    for row in read_rows(path):
        if not isinstance(row.get("step"), int):
            raise ValueError(f"{path} holds a row without its step: {str(row)[:80]}. Remove it, or restore the file")
        if row["step"] > last_step:
            return
        yield row


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Flatten the numbers of a row; in an evaluation, prefix them with the name of the data set."""
    prefix = f"{row['dataset']}/" if "dataset" in row else ""
    numbers = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            numbers.update({f"{prefix}{name}/{key}": inner for key, inner in value.items()})
        elif isinstance(value, int | float) and name != "step":
            numbers[prefix + name] = value
    return numbers
