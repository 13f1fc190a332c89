"""The cost of a whole step follows from the record of the policy loss; test_pages.py has the tables of real records."""

import json
from pathlib import Path

import pytest

from bench import loss_page, loss_report
from bench.loss_report import Record, Row, Section
from outcome_rl.bench.measure import Times


def times(median_ms: float) -> dict[str, Times]:
    return {"forward_backward": Times(median_ms=median_ms, p20_ms=0.9 * median_ms, p80_ms=1.2 * median_ms, rounds=15)}


def row(name: str, median_ms: float) -> Row:
    errors = {"loss": 0.0, "gradients": [1e-7, 3e-7], "logps": None}
    return Row(
        name=name, carries_coefficients=True, obstacle=None, errors=errors, times=times(median_ms), peak_mib=128.0
    )


SECTION = Section(
    case={"tokens": 512, "rows": 600, "dead_tokens": 0, "kept_tokens": 0},
    floor="matrix products",
    floors=times(200.0),
    clocks=None,
    rows=[row("outcome_rl", 220.0), row("CCE", 1500.0)],
)


def test_a_dense_section_says_what_each_loss_makes_of_a_whole_step() -> None:
    """Weights of 106 million in the body and 28 in the head: a step of ours costs 134 + 3 (106 + 1.1 * 28) products."""
    lines = loss_report.table(SECTION).splitlines()
    assert "| 0.1B step | 8B step |" in lines[0]
    small = (134 + 3 * (106 + 7.5 * 28)) / (134 + 3 * (106 + 1.1 * 28))
    large = (7505 + 3 * (6980 + 7.5 * 525)) / (7505 + 3 * (6980 + 1.1 * 525))
    assert f"| CCE | 1,500 (1,350 to 1,800) | 7.50 | {small:.2f} | {large:.2f} | 128 | 3.0e-07 |" in lines
    assert "| outcome_rl | 220 (198 to 264) | 1.10 | 1.00 | 1.00 | 128 | 3.0e-07 |" in lines


def test_a_record_of_another_version_is_refused(tmp_path: Path) -> None:
    assert loss_page.read_records(tmp_path) == {}
    path, figures = tmp_path / "loss-cpu.json", {"sections": {"some": SECTION}}
    record = Record(config={}, figures=figures, devices=["cpu: some"], versions={}, commit="abc", date="2026-01-01")
    path.write_text(json.dumps(record))
    assert loss_page.read_records(tmp_path) == {"loss-cpu": record}
    (tmp_path / "loss-cpu-other.json").write_text(json.dumps(record | {"figures": {"sections": {"other": SECTION}}}))
    assert loss_page.read_records(tmp_path)["loss-cpu"]["figures"]["sections"].keys() == {"some", "other"}
    (tmp_path / "loss-cpu-other.json").write_text(json.dumps(record | {"commit": "def"}))
    assert loss_page.read_records(tmp_path).keys() == {"loss-cpu", "loss-cpu-2026-01-01"}
    path.write_text(json.dumps(record | {"figures": {"float32": {}}}))
    with pytest.raises(ValueError, match=r"loss-cpu\.json is of another version"):
        loss_page.read_records(tmp_path)
