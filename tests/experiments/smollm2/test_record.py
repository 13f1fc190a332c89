"""The record of the runs holds what its table, its verdicts and its plot say."""

import json
from pathlib import Path

import pytest
from PIL import Image
from written_runs import evaluation, write_run

from experiments.smollm2.record import draw, results_table, verdicts_table, write_record

GAIN = {"none": 0.0, "batch": 0.2}


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, list[Path]]:
    """Three seeds of two methods, whose test pass@32 differ by .2 and about as much in every seed."""
    found: dict[str, list[Path]] = {method: [] for method in GAIN}
    for method, gain in GAIN.items():
        for seed in range(3):
            high = 0.5 + gain + 0.001 * seed
            rows = [
                evaluation(step, f"toy:{name}", 0.01 * step, high if step else 0.5) | {"time/evaluate_s": 30.0}
                for step in (0, 40)
                for name in ("validation", "test")
            ]
            steps = [
                {
                    "step": step,
                    "epoch": 0,
                    "time/step_s": 60.0,
                    "outcomes/correct_rate": 0.1,
                    "outcomes/distinct_in_group": 2.0,
                }
                for step in range(1, 41)
            ]
            settings = [f"exploration.bonus={method}", f"trainer.seed={seed}"]
            found[method].append(write_run(tmp_path / f"{method}{seed}", settings, rows, steps))
    return found


def test_tables_and_plot_follow_from_the_runs(runs: dict[str, list[Path]], tmp_path: Path) -> None:
    record = json.loads(write_record(runs, tmp_path / "results").read_text())
    assert {"config", "commit", "devices", "date"} <= set(record)
    shown = results_table(record["figures"])
    assert "| warm-started policy | 3 | 0.000 ± 0.000 | 0.500 ± 0.000 | 4.000 ± 0.000 |  |" in shown
    assert "| GRPO | 3 | 0.400 ± 0.000 | 0.501 ± 0.001 | 4.000 ± 0.000 | 42 |" in shown
    assert "| Batch | 3 | 0.400 ± 0.000 | 0.701 ± 0.001 | 4.000 ± 0.000 | 42 |" in shown
    verdicts = verdicts_table(record["figures"])
    assert "| GRPO | warm-started policy | pass@1 | +0.400 (+0.400 to +0.400) | higher |" in verdicts
    assert "| Batch | GRPO | pass@32 | +0.200 (+0.200 to +0.200) | higher |" in verdicts
    assert "| Batch | GRPO | pass@1 | +0.000 (+0.000 to +0.000) | no difference |" in verdicts
    draw(record["figures"], tmp_path / "plot.png")
    with Image.open(tmp_path / "plot.png") as image:
        assert image.width > 800
