"""What a run writes down: metrics, evaluations and sample completions as JSON lines, and TensorBoard where installed.

Each row carries its step. Resuming from step N first drops the rows after N, so that an interrupted run ends with the
same records as one that was not.
"""

import json
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

STREAMS = ("metrics", "evaluations", "samples")


def has_records(run_dir: Path) -> bool:
    """Whether a run has written rows into the folder."""
    paths = [run_dir / f"{stream}.jsonl" for stream in STREAMS]
    return any(path.exists() and path.stat().st_size for path in paths)


def set_aside(run_dir: Path) -> Path:
    """Move the records of a run that cannot be continued into `abandoned-1`, `abandoned-2`, ..., and say where."""
    number = 1
    while (run_dir / f"abandoned-{number}").exists():
        number += 1
    place = run_dir / f"abandoned-{number}"
    place.mkdir()
    for name in (*(f"{stream}.jsonl" for stream in STREAMS), "tensorboard"):
        if (run_dir / name).exists():
            (run_dir / name).rename(place / name)
    return place


class Records:
    """Append-only streams `metrics.jsonl`, `evaluations.jsonl` and `samples.jsonl` in the run's folder."""

    def __init__(self, run_dir: Path, *, last_step: int, tensorboard: bool) -> None:
        """Open the streams of a run whose first `last_step` steps are done.

        Args:
            last_step: rows of later steps are dropped.
            tensorboard: also write `tensorboard/`, where the package is installed.
        """
        run_dir.mkdir(parents=True, exist_ok=True)
        self._paths = {stream: run_dir / f"{stream}.jsonl" for stream in STREAMS}
        for path in self._paths.values():
            _drop_after(path, last_step)
        self._files = {stream: path.open("a", encoding="utf-8") for stream, path in self._paths.items()}
        self._board = None
        if tensorboard and find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(run_dir / "tensorboard"), purge_step=last_step + 1)

    def append(self, stream: str, row: Mapping[str, Any]) -> None:
        """Write one row, with its `step`, at once."""
        file = self._files[stream]
        file.write(json.dumps(row) + "\n")
        file.flush()
        if self._board is not None and stream != "samples":
            prefix = f"{row['dataset']}/" if "dataset" in row else ""
            for name, value in _scalars(row):
                self._board.add_scalar(prefix + name, value, row["step"])

    def rows(self, stream: str) -> list[dict[str, Any]]:
        """Every row of a stream."""
        return [json.loads(line) for line in self._paths[stream].read_text(encoding="utf-8").splitlines()]

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        if self._board is not None:
            self._board.close()


def _scalars(row: Mapping[str, Any]) -> list[tuple[str, float]]:
    flat = []
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat += [(f"{name}/{key}", inner) for key, inner in value.items()]
        elif isinstance(value, int | float) and name != "step":
            flat.append((name, value))
    return flat


def _drop_after(path: Path, last_step: int) -> None:
    """Keep the rows up to a step; a last line cut short by a kill belongs to a later one."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if not line.endswith("\n") or json.loads(line)["step"] > last_step:
            break
        kept.append(line)
    scratch = path.with_suffix(".tmp")
    scratch.write_text("".join(kept), encoding="utf-8")
    os.replace(scratch, path)
