"""The table of methods against GRPO, from records."""

import json
import re
import statistics
from pathlib import Path

import pytest
from reproduce_records import records

from experiments.paper import methods
from experiments.paper.figures import COLOURS
from experiments.paper.measures import BASE, Results, final
from experiments.paper.plan import ESTIMATORS, METHODS, METHODS_TABLE, SAMPLING
from experiments.paper.tables import label
from outcome_rl.tools.verdicts import estimate


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "records.json").write_text(json.dumps(records()))
    return tmp_path


def test_every_method_has_a_row_with_its_difference_from_grpo(source: Path) -> None:
    record = json.loads(methods.write_record(source, source / "results").read_text())
    assert {"config", "commit", "devices", "date"} <= set(record)
    rows = {
        cells[0]: cells[1:]
        for cells in re.findall(r"^\| (.*) \|$", methods.methods_table(record), re.MULTILINE)
        for cells in [cells.split(" | ")]
    }
    results = Results(records())
    of_batch, of_grpo = (
        [final(1)(run) for cell in results.cells for run in results.runs(cell, method)] for method in ("batch", "none")
    )
    found = estimate([left - right for left, right in zip(of_batch, of_grpo, strict=True)])
    assert rows["Batch"][0] == f"{statistics.mean(of_batch):.3f}"
    assert rows["Batch"][1].strip("*") == f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})"
    assert rows["GRPO"][1] == rows["base policy"][1] == ""
    assert list(rows)[2:4] == ["base policy", "GRPO"]


def test_every_method_of_the_plan_has_a_label_and_a_colour() -> None:
    assert {BASE, *METHODS, *ESTIMATORS, *SAMPLING} <= set(COLOURS)
    assert len({label(method) for method in METHODS_TABLE.methods}) == len(METHODS_TABLE.methods)
