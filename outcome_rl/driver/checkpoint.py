"""Checkpoints that are either whole or not there, and that refuse to continue another run.

    <run>/checkpoints/global_step_<N>/
        model/               Hugging Face folder: weights, config, tokenizer
        optimizer.pt         AdamW and schedule
        counts.safetensors   historical counts, stamped with the outcome rule
        state.json           step, configuration, data fingerprint, solved questions, outcome classes

A checkpoint is written beside its place and renamed into it, the last step of all: a kill or a full disk leaves the
previous one. Sampling and batch order are functions of seed and step, so no generator state needs keeping.
"""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

_NAME = re.compile(r"global_step_(\d+)")
_SCRATCH = ".unfinished-"


def write_checkpoint(root: Path, step: int, fill: Callable[[Path], None], keep: int) -> Path:
    """Write a checkpoint atomically, then remove all but the newest `keep`.

    Args:
        root: the run's folder of checkpoints.
        step: number of updates done; no checkpoint of this step may exist.
        fill: writes the contents into a folder it is given.
        keep: >= 1.

    Raises:
        OSError: anything went wrong, be it a full disk or contents that cannot be written; earlier checkpoints are as
            they were.
    """
    root.mkdir(parents=True, exist_ok=True)
    place, scratch = root / f"global_step_{step}", root / f"{_SCRATCH}{step}"
    for leftover in root.glob(f"{_SCRATCH}*"):
        shutil.rmtree(leftover)
    scratch.mkdir()
    try:
        fill(scratch)
        for path in [*scratch.rglob("*"), scratch]:
            _flush(path)
        scratch.rename(place)
        _flush(root)
    except Exception as error:  # of a full disk alone, every library has its own
        previous = latest_checkpoint(root)
        raise OSError(
            f"checkpoint at step {step} failed: {error}; "
            f"{'no earlier checkpoint exists' if previous is None else f'the last good one is {previous}'}"
        ) from error
    finally:
        if scratch.exists():
            shutil.rmtree(scratch, ignore_errors=True)
    for old in _checkpoints(root)[:-keep]:
        _remove(old)
    return place


def latest_checkpoint(root: Path) -> Path | None:
    """The newest complete checkpoint of a run."""
    found = _checkpoints(root)
    return found[-1] if found else None


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The `state.json` of a checkpoint.

    Raises:
        ValueError: it is damaged.
    """
    path = checkpoint / "state.json"
    try:
        state: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path} cannot be read: {error}. Remove this checkpoint to continue from an earlier one"
        ) from error
    return state


def check_same_run(saved: dict[str, Any], current: dict[str, Any], checkpoint: Path) -> None:
    """Refuse to continue a checkpoint of other data, another outcome rule or other hyperparameters.

    Args:
        saved, current: flat mappings of what must agree.

    Raises:
        ValueError: naming every difference.
    """
    differences = [
        f"{key}: {saved.get(key)!r} in the checkpoint, {current.get(key)!r} now"
        for key in sorted(saved.keys() | current.keys())
        if saved.get(key) != current.get(key)
    ]
    if differences:
        raise ValueError(
            f"{checkpoint} belongs to another run: {'; '.join(differences)}. "
            "Restore these settings, or start afresh under another trainer.experiment_name"
        )


def _checkpoints(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    steps = {int(match[1]): path for path in root.iterdir() if (match := _NAME.fullmatch(path.name))}
    return [steps[step] for step in sorted(steps)]


def _remove(checkpoint: Path) -> None:
    """Delete a checkpoint so that a kill in the middle cannot leave half of it under its name."""
    doomed = checkpoint.with_name(f"{_SCRATCH}{checkpoint.name}")
    checkpoint.rename(doomed)
    shutil.rmtree(doomed)


def _flush(path: Path) -> None:
    """Force a file or folder to disk, so that a rename never arrives before the contents it names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
