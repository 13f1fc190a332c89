"""The benchmark of gaps, in small."""

import json
from pathlib import Path

import pytest

from bench import gaps


def test_each_loss_is_timed_with_each_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "H", 8)
    monkeypatch.setattr(gaps, "ROWS", 4)
    gaps.main(["--rounds", "1", "--out", str(tmp_path)])
    figures = json.loads((tmp_path / "gaps-cpu.json").read_text())["figures"]
    assert len(figures) == 4 * len(gaps.LOSSES)
    assert all(len(row) >= 4 and min(row.values()) > 0 for row in figures.values())
    assert len(gaps.table(figures).splitlines()) == 2 + 2 * len(gaps.LOSSES)
