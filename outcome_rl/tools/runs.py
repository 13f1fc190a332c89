"""Files of runs, finished or not, as the tools read them."""

from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

from outcome_rl.files.bounds import read_state_file
from outcome_rl.files.run_rows import STREAMS, read_stream
from outcome_rl.grpo.config.load import leaves, read_yaml
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.data.problems import set_name
from outcome_rl.grpo.run.checkpoint import CHECKPOINTS, latest_checkpoint
from outcome_rl.grpo.run.evaluation import best_steps, watched_set
from outcome_rl.grpo.run.run_log import check_rows, has_rows
from outcome_rl_kernels.settings import nested, settings_of

NEEDED = {
    *("model.path", "data.train_files", "data.val_files", "data.test_files"),
    *("exploration.bonus", "exploration.adv_estimator"),
}
PARTS = {"test": "test_files", "validation": "val_files"}


class Comparison(NamedTuple):
    """Base policy and newest policy on one data set: two rows of `evaluations.jsonl`."""

    dataset: str
    base: dict[str, Any]
    trained: dict[str, Any]


class Run(NamedTuple):
    """Files of a run, finished or not."""

    name: str
    config_text: str
    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    samples: list[dict[str, Any]]

    @property
    def last_samples(self) -> list[dict[str, Any]]:
        """Sample completions of the last step that has some."""
        return [row for row in self.samples if row["step"] == self.samples[-1]["step"]]

    @property
    def best(self) -> dict[str, tuple[int, float]]:
        """Metric -> step and value, where it is the best on the validation data."""
        return best_steps(self.watched("validation"))

    def watched(self, part: str) -> list[dict[str, Any]]:
        """Return the evaluations of the data set that represents the "test" or "validation" data; see `watched_set`."""
        watched = watched_set(self.config["data"][PARTS[part]])
        return [row for row in self.evaluations if row["dataset"] == watched]

    @property
    def comparisons(self) -> list[Comparison]:
        """First and last row of each test set (without one, of each validation set)."""
        data = self.config["data"]
        names = dict.fromkeys(set_name([source]) for source in data["test_files"] or data["val_files"])
        rows = {name: [row for row in self.evaluations if row["dataset"] == name] for name in names}
        return [Comparison(name, found[0], found[-1]) for name, found in rows.items() if len(found) > 1]


def read_run(folder: Path) -> Run:
    """Read the files of a run, which may still be running; skip a line that is being written.

    Raises:
        ValueError: the folder holds no run, its settings or a row of it are damaged, or rows are not those that its
            newest checkpoint counts.
    """
    path = folder / "config.yaml"
    if not path.is_file() or not has_rows(folder):
        raise ValueError(f"{folder} holds no run: config.yaml and metrics.jsonl or evaluations.jsonl are missing")
    if newest := latest_checkpoint(folder / CHECKPOINTS):
        check_rows(folder, newest)
    streams = {stream: read_stream(folder, stream) for stream in STREAMS}
    return Run(folder.name, read_state_file(path).decode(errors="replace"), _settings(path), **streams)


def _settings(path: Path) -> dict[str, Any]:
    """Return the settings of a run, those that it lacks at their defaults, as a later version may add some."""
    given, settings = dict(leaves(read_yaml(path))), nested(TrainConfig())
    try:
        if lacking := NEEDED - given.keys():
            raise ValueError(f"it lacks {min(lacking)}")
        for one in settings_of(TrainConfig):  # no configuration is made of them, which would import user code
            *sections, name = one.name.split(".")
            reduce(getitem, sections, settings)[name] = one.parse(given.get(one.name, one.default))
        return settings
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}. Restore it from a copy") from error
