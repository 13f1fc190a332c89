"""Models that a command may name: a run, a checkpoint, or any other."""

import warnings
from pathlib import Path

from outcome_rl.files.atomic import MANIFEST, lack_of_model
from outcome_rl.grpo.run.checkpoint import CHECKPOINTS, check_checkpoint, latest_checkpoint


def find_model(path: str) -> tuple[str, Path | None]:
    """Find the model at a path, and the settings file of the run that trained it.

    Args:
        path: a run's folder (its newest checkpoint), a checkpoint, its `model` folder, or any other model: a folder, a
            hub name, or "toy".

    Raises:
        ValueError: the run has no checkpoint, its model is damaged, or a local path leads nowhere.
    """
    folder = Path(path)
    if (folder / "config.yaml").is_file() and not (folder / "config.json").is_file():
        newest = latest_checkpoint(folder / CHECKPOINTS)
        if newest is None:
            raise ValueError(f"{folder} is a run without a checkpoint, so it holds no model yet")
        folder = newest
    if _is_checkpoint(folder):
        folder = folder / "model"
    checkpoint = folder.resolve().parent
    if not _is_checkpoint(checkpoint):
        if path != "toy" and (why := lack_of_model(path)):
            raise ValueError(f"{path!r} holds no model: {why}; give a run, a checkpoint or a model")
        return path, None
    check_checkpoint(checkpoint, "model/")
    settings = checkpoint.parents[1] / "config.yaml"
    if settings.is_file():
        return str(folder), settings
    warnings.warn(
        f"{checkpoint} is a copy of a checkpoint without {settings}, the settings of its run: its prompts and its "
        "sampling are the defaults where no setting says otherwise. Give --config with that file",
        stacklevel=2,
    )
    return str(folder), None


def _is_checkpoint(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (MANIFEST, "state.json"))
