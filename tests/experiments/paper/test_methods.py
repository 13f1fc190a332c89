"""The record of the methods compared with GRPO."""

import json
from pathlib import Path

from reproduce_records import records

from experiments.paper import methods
from experiments.paper.figures import COLOURS
from experiments.paper.measures import BASE, Results, final
from experiments.paper.plan import ESTIMATORS, METHODS, METHODS_TABLE, SAMPLING
from experiments.paper.tables import label
from outcome_rl.files.atomic import write_json


def test_the_record_has_the_last_test_of_every_run(tmp_path: Path) -> None:
    made = records()
    write_json(tmp_path / "records.json", made)
    record = json.loads(methods.write_record(tmp_path, tmp_path / "results").read_text())
    assert {"config", "commit", "devices", "date"} <= set(record)
    results = Results(made)
    for method in (BASE, *made["plan"]["methods"]):
        runs = [run for cell in results.cells for run in results.runs(cell, method)]
        assert [row["pass@1"] for row in record["figures"][method]] == [final(1)(run) for run in runs]


def test_every_method_of_the_plan_has_a_label_and_a_colour() -> None:
    assert {BASE, *METHODS, *ESTIMATORS, *SAMPLING} <= set(COLOURS)
    assert len({label(method) for method in METHODS_TABLE.methods}) == len(METHODS_TABLE.methods)
