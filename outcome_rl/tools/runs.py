"""Files of runs, finished or not, as the tools read them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from outcome_rl.files import read_rows
from outcome_rl.grpo.config.load import read_yaml
from outcome_rl.grpo.data.problems import set_name
from outcome_rl.grpo.run.evaluation import MACRO_TEST, MACRO_VALIDATION, best_steps, watched_set
from outcome_rl.grpo.run.run_log import STREAMS, has_rows

_NUMBER = (int, float)
_AT_K = Mapping[str, float]
# Stream -> the fields that every row has, with their types; the tools read others only where they are.
FIELDS: dict[str, dict[str, Any]] = {
    "metrics": {"step": int, "epoch": int},
    "evaluations": {
        "step": int,
        "dataset": str,
        "n_questions": int,
        "n_samples": int,
        "no_answer_rate": _NUMBER,
        "pass_at_k": _AT_K,
        "diff_at_k": _AT_K,
    },
    "samples": {
        "step": int,
        **dict.fromkeys(("question", "gold", "completion"), str),
        **dict.fromkeys(("reward", "count", "bonus", "advantage"), _NUMBER),
        "outcome": (str, type(None)),
        "correct": bool,
    },
}
# Settings of config.yaml that the tools read.
SETTINGS: dict[str, dict[str, Any]] = {
    "model": {"path": str},
    "data": dict.fromkeys(("train_files", "val_files", "test_files"), list),
    "reward": {"function": str},
    "rollout": {"n": int},
    "trainer": {"seed": int},
}


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
    def best(self) -> dict[str, tuple[int, float]]:
        """Metric -> step and value, where it is the best on the validation data."""
        return best_steps(self.watched(MACRO_VALIDATION, self.config["data"]["val_files"]))

    def watched(self, macro: str, sources: Sequence[str]) -> list[dict[str, Any]]:
        """Return the evaluations of the data set that represents several sources; see `watched_set`."""
        return [row for row in self.evaluations if row["dataset"] == watched_set(macro, sources)]

    @property
    def comparisons(self) -> list[Comparison]:
        """First and last row of each test set (without one, of each validation set), after their average's rows."""
        data = self.config["data"]
        macro, sources = (
            (MACRO_TEST, data["test_files"]) if data["test_files"] else (MACRO_VALIDATION, data["val_files"])
        )
        names = dict.fromkeys([macro, *(set_name([source]) for source in sources)])
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
    for section, fields in SETTINGS.items():
        _check_fields(config.get(section), fields, f"{path}, section {section}")
    streams: dict[str, list[dict[str, Any]]] = {}
    for stream in STREAMS:
        streams[stream] = list(read_rows(folder / f"{stream}.jsonl"))
        for number, row in enumerate(streams[stream], start=1):
            _check_fields(row, FIELDS[stream], f"{folder / stream}.jsonl, row {number}")
    return Run(folder.name, path.read_text(encoding="utf-8"), config, **streams)


def _check_fields(row: Any, fields: Mapping[str, Any], where: str) -> None:
    """Raise ValueError if a row lacks a field, or one has another type."""
    for name, kind in fields.items():
        value = row.get(name) if isinstance(row, Mapping) else None
        if kind is _AT_K:
            fits = isinstance(value, Mapping) and bool(value) and all(map(_is_k_and_number, value.items()))
        else:
            fits = isinstance(value, kind) and name in row
        if not fits:
            raise ValueError(
                f"{where} is damaged or of another version: {name} is {str(value)[:40]!r}. Remove it, or restore it "
                "from a copy"
            )


def _is_k_and_number(item: tuple[Any, Any]) -> bool:
    return str(item[0]).isdecimal() and isinstance(item[1], int | float)
