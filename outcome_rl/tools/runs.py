"""Files of runs, finished or not, as the tools read them."""

import math
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from outcome_rl.grpo.config.load import leaves, read_yaml
from outcome_rl.grpo.data.problems import set_name
from outcome_rl.grpo.run.evaluation import MACRO_TEST, MACRO_VALIDATION, best_steps, watched_set
from outcome_rl.grpo.run.run_log import has_rows, read_stream
from outcome_rl_kernels.settings import check_types

Number = int | float


class Metrics(TypedDict):
    """Fields of every row of `metrics.jsonl`; the others are numbers too."""

    step: int
    epoch: int


class Evaluation(TypedDict):
    """Fields of every row of `evaluations.jsonl`."""

    step: int
    dataset: str
    n_questions: int
    n_samples: int
    no_answer_rate: Number
    pass_at_k: dict[str, Number]
    diff_at_k: dict[str, Number]


class Samples(TypedDict):
    """Fields of every row of `samples.jsonl`."""

    step: int
    question: str
    gold: str
    completion: str
    reward: Number
    count: Number
    bonus: Number
    advantage: Number
    outcome: str | None
    correct: bool


PARTS = {"test": (MACRO_TEST, "test_files"), "validation": (MACRO_VALIDATION, "val_files")}
ROWS = {"metrics": Metrics, "evaluations": Evaluation, "samples": Samples}


Settings = TypedDict(
    "Settings",
    {
        "model.path": str,
        "data.train_files": list[str],
        "data.val_files": list[str],
        "data.test_files": list[str],
        "reward.function": str,
        "rollout.n": int,
        "trainer.seed": int,
    },
)
"""Settings of `config.yaml` that the tools read."""


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
        macro, sources = PARTS[part]
        return [row for row in self.evaluations if row["dataset"] == watched_set(macro, self.config["data"][sources])]

    @property
    def comparisons(self) -> list[Comparison]:
        """First and last row of each test set (without one, of each validation set), after their average's rows."""
        data = self.config["data"]
        macro, sources = PARTS["test" if data["test_files"] else "validation"]
        names = dict.fromkeys([macro, *(set_name([source]) for source in data[sources])])
        rows = {name: [row for row in self.evaluations if row["dataset"] == name] for name in names}
        return [Comparison(name, found[0], found[-1]) for name, found in rows.items() if len(found) > 1]


def read_run(folder: Path) -> Run:
    """Read the files of a run, which may still be running; skip a line that is being written.

    Raises:
        ValueError: the folder holds no run, or a file of it is damaged.
    """
    path = folder / "config.yaml"
    if not path.is_file() or not has_rows(folder):
        raise ValueError(f"{folder} holds no run: config.yaml and metrics.jsonl or evaluations.jsonl are missing")
    config = read_yaml(path)
    _check(f"{path}: it", dict(leaves(config)), Settings)
    streams: dict[str, list[dict[str, Any]]] = {}
    for stream, row_type in ROWS.items():
        streams[stream] = read_stream(folder, stream)
        for number, row in enumerate(streams[stream], start=1):
            where = f"{folder / stream}.jsonl, row {number}:"
            _check(f"{where} it", row, row_type)
            if stream == "metrics":
                _check(f"{where} it", row, dict[str, Number])
                if broken := next((name for name, value in row.items() if not math.isfinite(value)), None):
                    raise ValueError(f"{where} {broken} must be a finite number; got {row[broken]}. Remove the row")
    ks: dict[str, list[str]] = {}
    for row in streams["evaluations"]:
        k_of_set = ks.setdefault(row["dataset"], [*row["pass_at_k"]])
        if not (k_of_set == [*row["pass_at_k"]] == [*row["diff_at_k"]] and all(map(str.isdecimal, k_of_set))):
            raise ValueError(
                f"{folder}/evaluations.jsonl is damaged: pass_at_k and diff_at_k of {row['dataset']} must have the "
                "same k, in all rows. Restore it from a copy"
            )
    return Run(folder.name, path.read_text(encoding="utf-8"), config, **streams)


def _check(where: str, value: Any, declared: Any) -> None:
    try:
        check_types(where, [value], declared)
    except ValueError as error:
        raise ValueError(f"{error}. The file is damaged or of another version: restore it from a copy") from error
