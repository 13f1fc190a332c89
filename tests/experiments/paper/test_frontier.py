"""The table of all methods at the end of training, from records."""

import re
import statistics
from dataclasses import replace

import pytest
from reproduce_records import PLAN, records

from experiments.paper import frontier
from experiments.paper.measures import Results, final


@pytest.fixture
def results() -> Results:
    return Results(records(plan=replace(PLAN, splits=("medium",))))


def test_every_method_has_a_row_with_mean_and_range(results: Results) -> None:
    rows = re.findall(r"^\| (.*?) \| (.*?) \|", frontier.metrics_table(results), re.MULTILINE)[2:]
    names = [name for name, _ in rows]
    assert names == ["base policy", "GRPO", "UCB, c = 0.2", "UCB-Con, c = 0.2", "Batch, c = 0.2", "UCB-Con, c = 1"]
    values = [final(1)(run) for run in results.runs(results.cells[0], "batch")]
    assert dict(rows)["Batch, c = 0.2"] == f"{statistics.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"
