"""Running `outcome-rl train` in tests, and comparing what two runs left behind."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from outcome_rl import cli
from outcome_rl.driver.checkpoint import latest_checkpoint, read_best
from outcome_rl.driver.config import TrainConfig

STREAMS = ("metrics", "evaluations", "samples")
MakeConfig = Callable[..., TrainConfig]
MakeOverrides = Callable[..., list[str]]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["train", *arguments])


def rows(run_dir: Path, stream: str) -> list[dict[str, Any]]:
    """The rows of a stream without what depends on the clock."""
    lines = (run_dir / f"{stream}.jsonl").read_text().splitlines()
    timed = ("time/", "perf/")
    return [{key: value for key, value in json.loads(line).items() if not key.startswith(timed)} for line in lines]


def files(checkpoint: Path) -> dict[str, bytes]:
    return {name: (checkpoint / name).read_bytes() for name in ("model/model.safetensors", "counts.safetensors")}


def assert_same_run(run_dir: Path, other: Path) -> None:
    for stream in STREAMS:
        assert rows(run_dir, stream) == rows(other, stream), stream
    left, right = latest_checkpoint(run_dir / "checkpoints"), latest_checkpoint(other / "checkpoints")
    assert left is not None
    assert right is not None
    assert left.name == right.name
    assert files(left) == files(right)
    states = [json.loads((place / "state.json").read_text()) for place in (left, right)]
    for state in states:
        del state["identity"]
    assert states[0] == states[1]
    assert read_best(run_dir / "checkpoints") == read_best(other / "checkpoints")


def on_file(folder: Path) -> list[str]:
    return [f"data.train_files={folder / 'problems.jsonl'}", "data.val_files=[]", "trainer.total_training_steps=2"]


class Process:
    """`outcome-rl train` in a process of its own, to be stopped once it has written so many rows."""

    def __init__(self, run_dir: Path, overrides: list[str]) -> None:
        command = [sys.executable, "-m", "outcome_rl.cli", "train", "--config", "embedded", *overrides]
        self.run_dir = run_dir
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, number: int, stream: str = "metrics") -> None:
        """Return once a stream has so many rows, or the process has ended."""
        path = self.run_dir / f"{stream}.jsonl"
        while self.process.poll() is None and not (path.exists() and path.read_bytes().count(b"\n") >= number):
            time.sleep(0.002)

    def stop(self, signum: int, after_rows: int, stream: str = "metrics") -> tuple[int, str, str]:
        """Signal the whole process group, as a terminal does, once a stream has so many rows; return exit status,
        stdout and stderr."""
        self.wait_for(after_rows, stream)
        if self.process.poll() is None:
            os.killpg(self.process.pid, signum)
        return self.finish()

    def finish(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=300)
        return self.process.returncode, out, err
