"""Folders of runs that were never trained, with the rows of a test."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from outcome_rl.files.jsonl import write_rows
from outcome_rl.grpo.config.load import load_config, to_yaml


def evaluation(step: int, dataset: str, low: float, high: float) -> dict[str, Any]:
    """Return a row of `evaluations.jsonl` with pass@1 and pass@32."""
    at_k = {"pass_at_k": {"1": low, "32": high}, "diff_at_k": {"1": 1.0, "32": 4.0}}
    return {"step": step, "dataset": dataset, "n_questions": 8, "n_samples": 256, "no_answer_rate": 0.0} | at_k


def write_run(
    folder: Path, settings: Iterable[str], evaluations: Iterable[dict[str, Any]], metrics: Iterable[dict[str, Any]]
) -> Path:
    """Write the configuration of the toy preset with `settings`, and the rows."""
    write_rows(folder / "evaluations.jsonl", evaluations)
    write_rows(folder / "metrics.jsonl", metrics)
    (folder / "config.yaml").write_text(to_yaml(load_config("toy", list(settings))))
    return folder
