"""The benchmark of divergences, in small."""

import json
from pathlib import Path

from bench import divergence


def test_every_divergence_is_measured_against_its_products(tmp_path: Path) -> None:
    divergence.main(["--device", "cpu", "--sizes", "16", "24", "211", "70", "--rounds", "2", "--out", str(tmp_path)])
    kinds = json.loads((tmp_path / "divergence-cpu.json").read_text())["figures"]
    for found in kinds.values():
        assert len(found["layouts"]) == 4
        for name in ("outcome_rl", "outcome_rl, sampled", "plain PyTorch"):
            row = found["rows"][name]
            assert max(row["errors"]) < 3e-2  # bfloat16 where it is fast
            assert row["times"]["of_floor"]["ratio"] > 0
    assert set(kinds) == {"reverse_kl", "forward_kl", "jsd"}
