"""Folders of runs that were never trained, with the rows of a test."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from outcome_rl.files.jsonl import read_rows, write_rows
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


def toy_run(folder: Path, bonus: str, seed: int, last: tuple[float, float], *more: str, best: float = 0.0) -> Path:
    """Write a run of the toy preset with pass@1 and pass@32 after its last step; `best` is pass@1 at step 25."""
    settings = [f"exploration.bonus={bonus}", f"trainer.seed={seed}", f"trainer.experiment_name={folder.name}", *more]
    rows = [
        evaluation(0, "toy:validation", 0.2, 0.8),
        evaluation(0, "toy:test", 0.3, 0.83),
        evaluation(25, "toy:validation", best, 0.7),
        evaluation(50, "toy:validation", 0.5, 0.75),
        evaluation(50, "toy:test", *last),
    ]
    metrics = [
        {"step": step, "epoch": (step - 1) // 2, "exploration/solved_fraction": 0.1 * step}
        for step in range(1, 6)  # two whole epochs, and half of one
    ]
    return write_run(folder, settings, rows, metrics)


def study(root: Path, gain: float, noise: float = 0.002, seeds: int = 5) -> list[Path]:
    """Write runs of two bonuses, of which the second gains in pass@32."""
    draw = random.Random(0)
    folders = []
    for bonus in ("none", "ucb_con"):
        for seed in range(seeds):
            shared = random.Random(seed).uniform(-0.1, 0.1)  # of a seed: paired differences do not see it
            top = 0.8 + shared + (gain if bonus == "ucb_con" else 0.0) + draw.uniform(-noise, noise)
            folders.append(toy_run(root / f"{bonus}{seed}", bonus, seed, (0.6 + shared, top)))
    return folders


def cut_off(folder: Path, step: int) -> None:
    """Remove what a run has written after a step, as if it was still running."""
    for name in ("evaluations", "metrics"):
        path = folder / f"{name}.jsonl"
        write_rows(path, [row for row in read_rows(path) if row["step"] <= step])
