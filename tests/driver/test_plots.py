"""Plots of full, short and gappy records are pictures."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from outcome_rl.driver.plots import plot_comparison, plot_training


def metrics(steps: int) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "reward/mean": step / 10,
            "train/solved_fraction": 0.5,
            "train/distinct_answers": 2.0,
            # Missing once all is solved, or where no response is correct.
            **({"train/distinct_answers_unsolved": 3.0} if step < 3 else {}),
            **({"entropy/correct": 0.1} if step == 2 else {}),
            "entropy/incorrect": 0.2,
        }
        for step in range(1, steps + 1)
    ]


def colours(path: Path) -> set[object]:
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert min(image.size) > 300
        found = image.convert("RGB").getcolors(maxcolors=2**24)
    assert found is not None
    return {colour for _, colour in found}


TRAINED, OTHER, BASE = (0x0B, 0x6E, 0x99), (0xD1, 0x49, 0x5B), (0x8C, 0x8C, 0x8C)


def test_training(tmp_path: Path) -> None:
    plot_training(metrics(50), tmp_path / "training.png")
    assert {TRAINED, OTHER} <= colours(tmp_path / "training.png")


def test_a_single_step_is_drawn(tmp_path: Path) -> None:
    plot_training([{"step": 1, "reward/mean": 0.5}], tmp_path / "training.png")
    assert TRAINED in colours(tmp_path / "training.png")


def test_a_run_without_correct_answers_has_a_plot(tmp_path: Path) -> None:
    rows = [{name: value for name, value in row.items() if "distinct" not in name} for row in metrics(3)]
    plot_training(rows, tmp_path / "training.png")
    assert TRAINED in colours(tmp_path / "training.png")


@pytest.mark.parametrize("ks", [("1",), ("1", "2", "4"), ("1", "2", "3")])
def test_comparison(ks: tuple[str, ...], tmp_path: Path) -> None:
    row: dict[str, Any] = {
        "step": 0,
        "dataset": "math_$500",
        "n_questions": 8,
        "pass_at_k": {k: 0.1 * int(k) for k in ks},
        "diff_at_k": {k: float(k) for k in ks},
    }
    trained = {**row, "step": 5, "pass_at_k": {k: 0.2 * int(k) for k in ks}}
    plot_comparison(row, trained, tmp_path / "comparison.png")
    assert {TRAINED, BASE} <= colours(tmp_path / "comparison.png")
