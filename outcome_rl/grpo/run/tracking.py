"""Trackers by name: where the figures of a run go besides its own files.

Every tracker gets the figures of `metrics.jsonl` and `evaluations.jsonl` as they are written. An id that lies in the
run's folder is the run's name to W&B and trackio, so that a continued run continues there too. After a kill, the steps
since the checkpoint are sent once more, with the same figures.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from outcome_rl.grpo.config.schema import TrainConfig

ID_FILE = "tracking_id"


class Tracker(Protocol):
    """Takes figures, by name and step, until it is closed."""

    def log(self, figures: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


def check_loggers(names: Sequence[str]) -> None:
    """Look, without importing them, whether the packages of `trainer.logger` are there.

    Raises:
        ValueError: one is not installed.
    """
    for name in names:
        # A folder of that name, such as the one W&B writes, is found too, as a package without a file.
        if name in _TRACKERS and ((spec := find_spec(name)) is None or spec.origin is None):
            raise ValueError(
                f"trainer.logger names {name!r}, which is not installed here: pip install {name}, or leave it out. "
                "The figures are in metrics.jsonl in any case"
            )


def open_trackers(config: TrainConfig, last_step: int) -> list[Tracker]:
    """The trackers of `trainer.logger`, for a run whose first `last_step` steps are done."""
    return [_TRACKERS[name](config, last_step) for name in config.trainer.logger if name in _TRACKERS]


class _TensorBoard:
    """Event files in `tensorboard/`."""

    def __init__(self, config: TrainConfig, last_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(config.run_dir / "tensorboard"), purge_step=last_step + 1)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    """Weights & Biases; `WANDB_MODE=offline` works, and its files lie in the run's folder."""

    def __init__(self, config: TrainConfig, last_step: int) -> None:
        import wandb

        self._run = wandb.init(
            project=config.trainer.project_name,
            name=config.trainer.experiment_name,
            id=_tracking_id(config.run_dir),
            resume="allow",
            dir=str(config.run_dir),
            config=asdict(config),
            allow_val_change=True,  # a continued run may change some settings
        )
        # A step of our own: W&B's may only grow, and would drop the steps that a continued run repeats.
        self._run.define_metric("*", step_metric="step")

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self._run.log({**figures, "step": step})

    def close(self) -> None:
        self._run.finish()


class _Trackio:
    """trackio, on this machine; `trackio show` opens its dashboard."""

    def __init__(self, config: TrainConfig, last_step: int) -> None:
        import trackio

        self._run = trackio.init(
            project=config.trainer.project_name,
            name=f"{config.trainer.experiment_name}-{_tracking_id(config.run_dir)}",  # it knows runs by name alone
            resume="allow",
            config=asdict(config),
            embed=False,
        )

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self._run.log(dict(figures), step=step)

    def close(self) -> None:
        self._run.finish()


_TRACKERS: dict[str, type[_TensorBoard | _Wandb | _Trackio]] = {
    "tensorboard": _TensorBoard,
    "wandb": _Wandb,
    "trackio": _Trackio,
}
LOGGERS = ("console", *_TRACKERS)


def _tracking_id(run_dir: Path) -> str:
    path = run_dir / ID_FILE
    if not path.exists():
        run_dir.mkdir(parents=True, exist_ok=True)
        path.write_text(secrets.token_hex(4))
    return path.read_text()
