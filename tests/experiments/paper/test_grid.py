"""The study that was predicted before it was run: rows, power, and what came first."""

import json
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
from reproduce_records import records

from experiments.judged import power
from experiments.lab.verdicts import estimate
from experiments.mechanism import matched
from experiments.mechanism.policy import Rates
from experiments.paper import grid
from experiments.paper.plan import GRID, SUMS

ROOT = Path(__file__).resolve().parents[3]
PREDICTIONS = json.loads(grid.PREDICTIONS.read_text())


def test_the_predictions_are_those_of_the_plan() -> None:
    assert PREDICTIONS["plan"] == json.loads(json.dumps(asdict(GRID)))
    assert PREDICTIONS["rates"] == json.loads(matched.RESULT.read_text())["rates"]
    assert [grid.Row(row["left"], row["right"], row["measure"]) for row in PREDICTIONS["rows"]] == list(grid.ROWS)
    assert all(row["low"] < row["mean"] < row["high"] for row in PREDICTIONS["rows"])
    assert all(len(row["by_table"]) == len(grid.FRESH) >= 30 for row in PREDICTIONS["rows"])
    assert not {*grid.FRESH} & {*range(22)}  # the rule tables of other studies
    assert {*GRID.instances} <= {*grid.FRESH}


def test_the_model_still_makes_the_predictions() -> None:
    row, table = grid.Row("batch", grid.GRPO, "final pass@32"), grid.FRESH[:1]
    rates = Rates(**PREDICTIONS["rates"])
    runs = grid.run_instances(table, {name: grid.model_method(name, rates) for name in (row.left, row.right)})
    predicted = PREDICTIONS["rows"][grid.ROWS.index(row)]["by_table"][0]
    assert grid.model_differences(runs, row, table) == pytest.approx([predicted], abs=1e-5)


def test_the_model_chose_the_coefficients() -> None:
    doses = PREDICTIONS["doses"]
    for name in SUMS:
        score = {c: sum(doses[f"{name}, c = {c:g}"][f"final pass@{k}"] for k in (1, 32)) for c in grid.DOSES}
        assert SUMS[name].coef == max(score, key=score.get)


def test_power_grows_with_effect_and_units() -> None:
    rows = len(grid.ROWS)
    assert power(0.0, 0.01, 16, rows) == pytest.approx(0.05 / rows, abs=0.01)
    assert power(0.01, 0.02, 16, rows) < power(0.02, 0.02, 16, rows) < power(0.02, 0.02, 30, rows)
    assert power(0.02, 0.02, 16, rows) < power(0.02, 0.02, 16, 1)
    assert power(0.1, 0.01, 16, rows) > 0.999


def git(*arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout.strip()


def test_the_predictions_came_before_the_results() -> None:
    """Every result file came into the history after the last change of the predictions."""
    path = grid.PREDICTIONS.relative_to(ROOT).as_posix()
    files = sorted(grid.TABLES.glob("*.json"))
    if git("rev-parse", "--is-shallow-repository") != "false" or not git("log", "--format=%H", "--", path):
        pytest.skip("no history here")
    predicted = git("log", "-1", "--format=%H", "--", path)
    for file in files:
        added = git("log", "--diff-filter=A", "--format=%H", "--", file.relative_to(ROOT).as_posix()).splitlines()
        for commit in added[-1:]:
            order = subprocess.run(["git", "merge-base", "--is-ancestor", predicted, commit], cwd=ROOT, check=False)
            assert (order.returncode, commit == predicted) == (0, False), f"{file.name} is older than the predictions"


def test_results_are_collected_once_and_judged_when_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "TABLES", tmp_path / "tables")
    made = records(plan=GRID)
    made["environment"] |= {"commit": "1" * 40}
    some = {**made, "cells": made["cells"][:3]}
    (tmp_path / "records.json").write_text(json.dumps(some))
    assert len(grid.collect(tmp_path, grid.TABLES)) == 3
    assert grid.collect(tmp_path, grid.TABLES) == []
    assert grid.verdicts_of(PREDICTIONS, grid.results()) is None
    assert "3 of 16 rule tables are done" in grid.grid_table(PREDICTIONS, grid.results())
    (tmp_path / "records.json").write_text(json.dumps(made))
    assert len(grid.collect(tmp_path, grid.TABLES)) == len(GRID.instances) - 3
    found = grid.results()
    judged = grid.verdicts_of(PREDICTIONS, found)
    assert len(judged) == len(grid.ROWS)
    row = grid.ROWS[1]
    assert estimate(grid.measured(row, found)).mean == pytest.approx(judged[1].mean)
    grid.draw(PREDICTIONS, found, tmp_path / "grid.png")
    assert (tmp_path / "grid.png").read_bytes().startswith(b"\x89PNG")
