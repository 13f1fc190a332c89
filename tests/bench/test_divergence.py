"""The benchmark of divergences, in small."""

import json
from pathlib import Path

import pytest

from bench import cases, divergence


def test_every_divergence_is_measured_against_its_products(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cases.MODELS, "tiny", (16, 211))
    monkeypatch.setitem(divergence.CASES, "cpu", ("tiny", 2, 35))
    divergence.main(["--device", "cpu", "--rounds", "2", "--out", str(tmp_path)])
    record = json.loads((tmp_path / "divergence-cpu.json").read_text())
    for found in record["figures"].values():
        assert len(found["layouts"]) == 4
        ours, sampled, plain = (found["rows"][name] for name in ("outcome_rl", "outcome_rl, sampled", "plain PyTorch"))
        assert max(ours["errors"]) < 1.1 * max(plain["errors"]) < 0.2  # of a small difference, in bfloat16
        assert max(sampled["errors"]) < 0.5
        assert all(row["times"]["of_floor"]["ratio"] > 0 for row in (ours, sampled, plain))
    assert {title.partition(",")[0] for title in record["figures"]} == {"reverse_kl", "forward_kl", "jsd"}
    assert len(divergence.table(record).splitlines()) == 3 + len(divergence.LOSSES) + 2
