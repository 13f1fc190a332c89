"""Log of a run: metrics, evaluations and sample completions as JSON lines.

Every row has its step, and steps ascend. A checkpoint holds the number and the digest of the rows before it, which are
forced to disk first. A run that continues from it must find exactly these rows. What was logged after them is dropped,
but for the evaluations of the checkpoint's own step, so that an interrupted run ends with the same rows as an
uninterrupted one.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

from outcome_rl.files.bounds import bounded_lines
from outcome_rl.files.run_rows import STREAMS, read_stream
from outcome_rl.grpo.run.checkpoint import read_state
from outcome_rl.grpo.run.tracking import ID_FILE, Tracker
from outcome_rl_kernels.whole_files import force, force_folder, open_to_append


class Counted(TypedDict):
    """The rows of a stream that a checkpoint was written after."""

    rows: int
    sha256: str


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

    def __init__(
        self,
        run_dir: Path | None,
        *,
        step: int = 0,
        counted: Mapping[str, Counted] | None = None,
        trackers: Sequence[Tracker] = (),
    ) -> None:
        """Open the streams of a run whose first `step` steps are done.

        Args:
            run_dir: folder of the run; None, on ranks other than zero, writes nothing.
            step: number of steps done.
            counted: what the checkpoint of this step holds of the streams; None: the run begins.
            trackers: receive the numbers of metrics and evaluations and tables of samples too; closed with the files.

        Raises:
            OSError: a stream is no file.
            ValueError: the files lack rows that the checkpoint counts, or hold others; they are then as they were.
        """
        self._folder, self._trackers = run_dir, trackers
        self._files: dict[str, BinaryIO] = {}
        self._rows: dict[str, int] = {}
        self._digests: dict[str, Any] = {}
        if run_dir is None:
            return
        run_dir.mkdir(parents=True, exist_ok=True)
        ends: dict[str, int] = {}
        try:
            for stream in STREAMS:
                path = run_dir / f"{stream}.jsonl"
                file = self._files[stream] = open_to_append(path)
                known = (counted or {}).get(stream, Counted(rows=0, sha256=hashlib.sha256().hexdigest()))
                digest, end = _checked(path, known, step)
                lines = _evaluations_of(file, path, step, known["rows"]) if counted and stream == "evaluations" else []
                for line in lines:
                    digest.update(line)
                self._rows[stream], self._digests[stream] = known["rows"] + len(lines), digest
                ends[stream] = end + sum(map(len, lines))
            for stream, end in ends.items():
                self._files[stream].truncate(end)
        except BaseException:
            self.close()
            raise

    def counted(self) -> dict[str, Counted]:
        """Force all rows to disk; return their number and digest, for a checkpoint."""
        for stream, file in self._files.items():
            force(file.fileno(), Path(f"{stream}.jsonl"))
        if self._folder is not None:
            force_folder(self._folder)
        return {
            stream: Counted(rows=rows, sha256=self._digests[stream].hexdigest()) for stream, rows in self._rows.items()
        }

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
                if tracker.table is not None:
                    tracker.log({"samples": tracker.table(columns)}, rows[0]["step"])

    def _write(self, stream: str, rows: Sequence[Mapping[str, Any]]) -> None:
        content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        self._files[stream].write(content)
        self._files[stream].flush()
        self._digests[stream].update(content)
        self._rows[stream] += len(rows)

    def rows(self, stream: str) -> list[dict[str, Any]]:
        """Return every row of a stream."""
        return [] if self._folder is None else read_stream(self._folder, stream)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        for tracker in self._trackers:
            tracker.close()


def check_rows(run_dir: Path, checkpoint: Path) -> None:
    """Check that the files of a run hold the rows that a checkpoint counts.

    Raises:
        ValueError: they do not, or the checkpoint is damaged.
    """
    state = read_state(checkpoint, "state.json")
    for stream in STREAMS:
        _checked(run_dir / f"{stream}.jsonl", state["log"][stream], state["run"]["step"])


def _checked(path: Path, counted: Counted, step: int) -> tuple[Any, int]:
    """Read the rows that the checkpoint of a step counts; return their digest and their size."""
    fix = "Restore the file from a copy, or remove this checkpoint to continue from an earlier one"
    digest, size, rows = hashlib.sha256(), 0, 0
    with path.open("rb") if path.exists() else BytesIO() as file:
        for line in islice(bounded_lines(file, path), counted["rows"]):
            digest.update(line)
            size += len(line)
            rows += line.endswith(b"\n")
    if rows < counted["rows"]:
        raise ValueError(
            f"{path} has lost rows: the checkpoint of step {step} counts {counted['rows']}, and {rows} are left. {fix}"
        )
    if digest.hexdigest() != counted["sha256"]:
        raise ValueError(
            f"the first {counted['rows']} rows of {path} are not those that the checkpoint of step {step} counts: some "
            f"were doubled, moved or changed. {fix}"
        )
    return digest, size


def _evaluations_of(file: BinaryIO, path: Path, step: int, rows: int) -> list[bytes]:
    """Return the lines after some rows that are evaluations of a step, up to one that is not, or is cut or repeated."""
    lines: list[bytes] = []
    done: set[str] = set()
    file.seek(0)
    for number, line in enumerate(bounded_lines(file, path)):
        try:
            row = json.loads(line)
            is_next = line.endswith(b"\n") and row["step"] == step and row["dataset"] not in done
            if row["step"] == step:
                done.add(row["dataset"])
        except (KeyError, TypeError, ValueError, RecursionError):
            is_next = False
        if number >= rows and not is_next:
            break
        lines += [line] * (number >= rows)
    return lines


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
