"""Tables, blocks and plots of the policy loss benchmark follow from its record alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import loss_page, loss_report
from bench.loss_report import Record, Row, Section
from outcome_rl.bench.measure import Times


def times(median_ms: float) -> Times:
    return Times(median_ms=median_ms, p20_ms=0.9 * median_ms, p80_ms=1.2 * median_ms, rounds=15)


def row(name: str, median_ms: float | None, **changes: Any) -> Row:
    timed = {} if median_ms is None else {"forward_backward": times(median_ms)}
    base = Row(
        name=name,
        carries_coefficients=True,
        obstacle=None,
        errors={"loss": 0.0, "gradients": [1e-7, 3e-7], "logps": None},
        times=timed,
        peak_mib=None if median_ms is None else 128.0,
    )
    return base | changes


@pytest.fixture
def record() -> Record:
    case = {
        "hidden": 512,
        "vocabulary": 32000,
        "dtype": "float32",
        "tokens": 512,
        "rows": 600,
        "dead_tokens": 128,
        "kept_tokens": 53.8,
        "median_kept_tokens": 6,
        "single_kept_tokens": 0.26,
        "entropy": 1.35,
    }
    section = Section(
        case=case,
        floor="matrix products",
        floors={"forward_backward": times(200.0)},
        clocks=None,
        rows=[
            row("outcome_rl", 220.0),
            row("outcome_rl, workspace 0.25 of the logits", 250.0, peak_mib=64.0),
            row("CCE", 1500.0),
            row("TRL chunked log-probs", None, obstacle="not installed", errors=None),
            row("Liger GRPO", None, obstacle="failed: error of the gradient 1 is 2.0e-01, at most 1.0e-04 is allowed"),
            row("PyTorch linear_cross_entropy", 210.0, carries_coefficients=False),
        ],
    )
    return Record(
        config={},
        figures={"sections": {"small, float32": section, "another": section}},
        devices=["cpu: some"],
        versions={"torch": "2.13.0"},
        commit="abc",
        date="2026-01-01",
    )


def test_the_table_of_a_section_has_every_row_with_time_ratio_memory_and_error_or_the_reason(record: Record) -> None:
    lines = loss_report.table(record["figures"]["sections"]["small, float32"]).splitlines()
    assert "| floor: matrix products | 200 (180 to 240) | 1 | | |" in lines
    assert "| outcome_rl | 220 (198 to 264) | 1.10 | 128 | 3.0e-07 |" in lines
    assert "| CCE | 1,500 (1,350 to 1,800) | 7.50 | 128 | 3.0e-07 |" in lines
    assert "| TRL chunked log-probs | not installed |  |  |  |" in lines
    assert any(line.startswith("| Liger GRPO | failed: error of the gradient 1 is 2.0e-01") for line in lines)
    assert any("carries no coefficients" in line for line in lines)
    assert len({line.count("|") for line in lines}) == 1


def test_a_dense_section_says_what_each_loss_makes_of_a_whole_step(record: Record) -> None:
    """Weights of 106 million in the body and 28 in the head: a step of ours costs 134 + 3 (106 + 1.1 * 28) products."""
    section = record["figures"]["sections"]["small, float32"]
    section["case"] |= {"dead_tokens": 0, "kept_tokens": 0}
    lines = loss_report.table(section).splitlines()
    assert "| 0.1B step | 8B step |" in lines[0]
    small = (134 + 3 * (106 + 7.5 * 28)) / (134 + 3 * (106 + 1.1 * 28))
    large = (7505 + 3 * (6980 + 7.5 * 525)) / (7505 + 3 * (6980 + 1.1 * 525))
    assert f"| CCE | 1,500 (1,350 to 1,800) | 7.50 | {small:.2f} | {large:.2f} | 128 | 3.0e-07 |" in lines
    assert "| outcome_rl | 220 (198 to 264) | 1.10 | 1.00 | 1.00 | 128 | 3.0e-07 |" in lines
    assert "| TRL chunked log-probs | not installed |  |  |  |  |  |" in lines
    plain = next(line for line in lines if "carries no coefficients" in line)
    assert "| 1.05 |  |  | 128 |" in plain
    assert len({line.count("|") for line in lines}) == 1


def test_the_summary_leaves_out_what_was_not_timed_and_plain_cross_entropies(record: Record) -> None:
    sections = record["figures"]["sections"]
    assert loss_page.summary(sections, loss_page.SUPPORTS) == ""
    lines = loss_page.summary(sections, loss_page.MAIN).splitlines()
    assert lines[0] == "| | small, float32 |"
    assert "| three matrix products | 200 ms |" in lines
    assert "| outcome_rl | 1.10 x, 128 MiB |" in lines
    assert not any("Liger" in line or "linear_cross_entropy" in line or "TRL" in line for line in lines)


def test_the_blocks_name_device_commit_and_every_section(record: Record) -> None:
    short, long = loss_page.blocks({"loss-cpu": record})
    assert "cpu: some; PyTorch 2.13.0; 2026-01-01" in short
    assert "(loss-cpu.png)" in short
    assert "commit abc" in long
    assert "**small, float32**: H = 512, V = 32,000, float32, 512 tokens padded to 600 rows, 25% of them dead; " in long
    assert (
        "dead; supports of 54 tokens in the mean, 6 in the median, 26% of them a single token; mean entropy 1.35 nats."
        in long
    )
    assert "**another**" in long
    assert loss_page.blocks({}) == ("", "")


def test_a_record_of_another_version_is_refused(record: Record, tmp_path: Path) -> None:
    assert loss_page.read_records(tmp_path) == {}
    path = tmp_path / "loss-cpu.json"
    path.write_text(json.dumps(record))
    assert loss_page.read_records(tmp_path) == {"loss-cpu": record}
    path.write_text(json.dumps(record | {"figures": {"float32": {}}}))
    with pytest.raises(ValueError, match=r"loss-cpu\.json is of another version"):
        loss_page.read_records(tmp_path)
