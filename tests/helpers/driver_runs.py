"""Running `outcome-rl train` in tests, and comparing what two runs left behind."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from outcome_rl import cli
from outcome_rl.driver.checkpoint import latest_checkpoint
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


def on_file(folder: Path) -> list[str]:
    return [f"data.train_files={folder / 'problems.jsonl'}", "data.val_files=[]", "trainer.total_training_steps=2"]
