"""Histories of runs of any training stack: metrics by step, and pass@k by step.

Our plug-ins log the same names in every stack (`Scored.metrics`). Only the file's format, pass@k and the entropy over
all responses differ:

| stack | file | pass@k | entropy of all |
|---|---|---|---|
| ours | folder of a run | `evaluations.jsonl`: the validation data, averaged over its sets | `entropy/all` |
| TRL | `trainer_state.json`, a folder with `checkpoint-N`, or `log_history` as JSON | none | `entropy` |
| verl | `file` logger | `val-*/SOURCE/acc/mean@n` and `best@k/mean`, averaged | `actor/entropy` |

verl's `best@k` draws with replacement: it is biased low, see `outcome_rl.metrics.best_at_k`.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from experiments.lab.comparison import identify
from outcome_rl.tools.runs import Run, read_run

Rows = dict[int, dict[str, Any]]  # step -> name -> value
SAMPLES, QUESTIONS = "exploration/samples", "exploration/questions"
OVER_SAMPLED = ("exploration/solved_fraction", "exploration/distinct_answers")
_VERL_VALIDATION = re.compile(
    r"val-(?:core|aux)/(?P<source>.+)/(?P<variable>acc|reward)/(?:mean@\d+|best@(?P<k>\d+)/mean)"
)


class History(NamedTuple):
    """Numbers of one run, finished or not."""

    name: str
    method: str
    metrics: Rows
    pass_at_k: dict[int, dict[int, float]]  # step -> k -> value; step 0 is the base policy
    with_replacement: bool  # pass@k are verl's best@k

    @property
    def questions(self) -> int:
        """Number of questions sampled in the whole run; 0 where the log does not hold it."""
        return max((int(row[QUESTIONS]) for row in self.metrics.values() if QUESTIONS in row), default=0)

    def by_samples(self, name: str, questions: int) -> dict[float, float]:
        """Return samples drawn per training question -> value of a metric, after each step.

        Solved questions and different answers are means over the questions sampled so far; over all training questions
        they are as many times smaller as questions were not sampled yet.

        Args:
            questions: number of training questions.
        """
        return {
            row[SAMPLES] / questions: row[name] * (row[QUESTIONS] / questions if name in OVER_SAMPLED else 1.0)
            for row in self.metrics.values()
            if SAMPLES in row and QUESTIONS in row and row.get(name) is not None
        }

    def by_step(self, name: str) -> dict[int, float]:
        """Return step -> value of a metric, where it was logged."""
        return {step: row[name] for step, row in self.metrics.items() if row.get(name) is not None}

    def over_k(self, step: int) -> dict[int, float]:
        """Return k -> pass@k at a step; empty without an evaluation."""
        return self.pass_at_k.get(step, {})

    def over_steps(self, k: int) -> dict[int, float]:
        """Return step -> pass@k of a k."""
        return {step: curve[k] for step, curve in self.pass_at_k.items() if k in curve}


def read_histories(words: Sequence[str]) -> tuple[list[History], dict[str, Any] | None]:
    """Read runs of one model on one data set.

    Args:
        words: files or folders of runs, `METHOD=PATH` to name the method; without a name, runs of our trainer are named
            by the settings that differ among them.

    Returns:
        The histories in the order of `words`, and the settings of the first run of our trainer, if there is one.

    Raises:
        FileNotFoundError, ValueError: a path holds no run, a log of TRL or verl has no method, or runs of our trainer
            are of two tasks or have equal settings and seeds.
    """
    named = [_split(word) for word in words]
    twice = [str(path) for path, count in Counter(path.resolve() for _, path in named).items() if count > 1]
    if twice:
        raise ValueError(f"{', '.join(twice)} is named twice, and would count as two runs: omit one")
    ours = [(path, read_run(path)) for _, path in named if _is_ours(path)]
    identities = identify([run for _, run in ours], [path for path, _ in ours])
    if len(tasks := dict.fromkeys(one.task for one in identities)) > 1:
        raise ValueError(
            f"the runs are of {len(tasks)} models or data sets: {' and '.join(str(task) for task in tasks)}. Call the "
            "command once for each"
        )
    own = {path: (run, identity.method) for (path, run), identity in zip(ours, identities, strict=True)}
    histories = []
    for method, path in named:
        if path in own:
            run, found = own[path]
            histories.append(_of_run(path, run, method or found))
        elif method is None:
            raise ValueError(f"{path}: a log of TRL or verl does not hold its method; write METHOD={path}")
        else:
            metrics = dict(sorted(_read_log(path).items()))
            if not metrics:
                raise ValueError(f"{path} holds no step of a log of TRL or verl")
            histories.append(History(str(path), method, metrics, _verl_pass_at_k(metrics), with_replacement=True))
    return histories, ours[0][1].config if ours else None


def _split(word: str) -> tuple[str | None, Path]:
    """Split METHOD=PATH; a path that exists may hold an equals sign itself."""
    method, equals, path = word.partition("=")
    if not equals or Path(word).exists():
        method, path = "", word
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist; expected the folder of a run, or a log of TRL or verl")
    return method or None, Path(path)


def _is_ours(path: Path) -> bool:
    return (path / "config.yaml").is_file()


def _of_run(path: Path, run: Run, method: str) -> History:
    # The validation data are evaluated over the whole run, the test data before and after it.
    rows = run.watched("validation") or run.watched("test")
    curves = {row["step"]: {int(k): value for k, value in row["pass_at_k"].items()} for row in rows}
    metrics = {row["step"]: row for row in run.metrics}
    return History(str(path), method, metrics, curves, with_replacement=False)


def _read_log(path: Path) -> Rows:
    if path.is_dir():
        states = [*path.glob("trainer_state.json"), *path.glob("checkpoint-*/trainer_state.json")]
        if not states:
            raise ValueError(f"{path} holds neither config.yaml of our trainer nor trainer_state.json of TRL")
        path = max(states, key=lambda state: len(_log_history(state)))
    if path.suffix == ".json":
        return _trl_rows(_log_history(path))
    return _verl_rows(path)


def _log_history(path: Path) -> list[dict[str, Any]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    history = content.get("log_history") if isinstance(content, dict) else content
    if not isinstance(history, list) or not all(isinstance(row, dict) and "step" in row for row in history):
        raise ValueError(f"{path}: expected TRL's trainer_state.json, or its log_history: a list of rows with `step`")
    return history


def _trl_rows(history: Sequence[Mapping[str, Any]]) -> Rows:
    rows: Rows = {}
    for row in history:
        numbers = _finite(row)
        if "entropy" in numbers:
            numbers["entropy/all"] = numbers["entropy"]
        rows.setdefault(int(row["step"]), {}).update(numbers)
    return {step: row for step, row in rows.items() if any("/" in name for name in row)}


def _verl_rows(path: Path) -> Rows:
    rows: Rows = {}
    with path.open(encoding="utf-8", errors="replace") as lines:
        for step, numbers in _verl_lines(lines, path):
            if "actor/entropy" in numbers:
                numbers["entropy/all"] = numbers["actor/entropy"]
            rows.setdefault(step, {}).update(numbers)
    return rows


def _verl_lines(lines: Iterator[str] | Any, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield step and numbers of each line of the file logger."""
    for number, line in enumerate(lines, 1):
        if line.startswith("{") and line.endswith("\n"):  # else it is being written
            try:
                row = json.loads(line)
                yield int(row["step"]), _finite(row["data"])
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}:{number}: expected verl's {{'step': ..., 'data': ...}}: {error}") from error


def _finite(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if isinstance(value, int | float) and math.isfinite(value)}


def _verl_pass_at_k(metrics: Rows) -> dict[int, dict[int, float]]:
    """Average verl's validation over its data sources, of accuracy where a source has it, else of the reward."""
    curves = {}
    for step, row in metrics.items():
        sources: dict[str, dict[str, dict[int, float]]] = {}
        for name, value in row.items():
            if found := _VERL_VALIDATION.fullmatch(name):
                curve = sources.setdefault(found["source"], {}).setdefault(found["variable"], {})
                curve[int(found["k"] or 1)] = value
        chosen = [variables.get("acc") or variables["reward"] for variables in sources.values()]
        if chosen:
            shared = sorted(set.intersection(*(set(curve) for curve in chosen)))
            curves[step] = {k: fmean(curve[k] for curve in chosen) for k in shared}
    return curves
