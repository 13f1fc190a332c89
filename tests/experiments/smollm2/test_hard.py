"""The plan on hard questions: its power, and a run of everything in small."""

import json
from functools import partial
from pathlib import Path

import pytest

from experiments.lab.verdicts import LEVEL
from experiments.smollm2 import hard, study
from experiments.smollm2.hard import METHODS, ROWS, STUDY, Plan
from outcome_rl.files.jsonl import read_rows


def test_power_is_high_for_large_effects_and_the_level_for_none() -> None:
    row = ROWS[0]
    assert study.power(STUDY, row._replace(effect=0.0)) == pytest.approx(LEVEL / len(ROWS), abs=0.003)
    assert study.power(STUDY, row._replace(effect=10 * row.spread)) > 0.99
    assert sum(study.power(STUDY, row) > 0.5 for row in ROWS) >= 3


def test_the_whole_plan_in_small(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(study, "make_model", lambda: None)
    monkeypatch.setattr(study, "RESULTS", tmp_path / "results")
    sizes = {"warm_starts": 2, "warm_steps": 2, "pool": 6, "failed": 8, "questions": 4, "batch": 2, "n": 4, "steps": 2}
    plan = Plan(**sizes, test_questions=2, test_samples=4)
    methods = {name: METHODS[name] for name in ("none", "pkpo+batch")}
    rows = tuple(
        row._replace(measure=row.measure.replace("64", "4"))
        for row in ROWS
        if {row.left, row.right} <= {"base", *methods}
    )
    small = STUDY._replace(plan=plan, methods=methods, rows=rows)
    prepare = partial(hard.prepare, plan, base=base)

    assert study.run(small, prepare, None, ["--units", "1"]) == 0
    (one,) = study.read_units(small)
    assert set(one["base"]) == {"solved", "answers", "pass@1", "pass@4", "diff@4"}
    assert "**2 of 4 trainings are done**, which complete 1 of 2 warm starts." in study.rows_table(small)
    result = study.result_file(small, 1, "none")
    written = json.loads(result.read_text())
    assert (written["config"]["unit"], written["config"]["method"]) == (1, "none")
    assert len(written["figures"]["curves"]["solved"]) == plan.steps

    assert study.run(small, prepare, None, []) == 0
    assert json.loads(result.read_text()) == written  # nothing is trained twice
    assert not [*small.runs.rglob("global_step_*")]
    assert len(units := study.read_units(small)) == 2
    assert len(study.judged(small, units)) == len(rows)
    assert "2 warm starts; intervals of 95 %" in study.rows_table(small)
    assert [set(unit) for unit in units] == [{"base", "none", "pkpo+batch"}] * 2
    folders = [small.runs / f"warm-{unit}" for unit in (0, 1)]
    assert [len(list(read_rows(folder / "base" / "samples.jsonl"))) for folder in folders] == [4, 4]
    first, second = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert first != second  # demonstrations of their own
    made = {path: path.stat().st_mtime_ns for path in folders[0].rglob("*")}
    assert prepare(small.runs, 0).keys() == {"solved", "answers"}
    assert {path: path.stat().st_mtime_ns for path in folders[0].rglob("*")} == made  # nothing is made twice
