"""The table of sampled gradients, with losses that did not run."""

from typing import Any

from bench.sampled import FLOOR, OTHERS, OURS, table


def test_every_other_loss_is_named_with_its_ratio_or_the_reason() -> None:
    ours = {"ratio": 0.5, "from": 0.4, "to": 0.6, "error_hidden": 1e-2, "error_weight": 2e-2}
    rows: dict[str, Any] = {
        FLOOR: {"seconds": 1.0, "nats": 2.0},
        OURS: ours,
        f"{OURS}, sampled": ours | {"entries": 7.0},
    }
    rows |= {"CCE": ours | {"ratio": 0.9}, "QuACK": {"not_measured": "needs a GPU"}}
    record = {
        "config": {"threads": 2},
        "figures": {"sections": {"temperature 1": rows}},
        "devices": ["cpu: here"],
        "versions": {"torch": "2"},
        "date": "today",
        "commit": "none",
    }
    lines = table([record]).splitlines()
    assert f"| temperature 1, 2.00 nats | {OURS}, sampled | 0.50 (0.40 to 0.60) | 1.0e-02, 2.0e-02 | 7 |" in lines
    assert "| temperature 1, 2.00 nats | CCE | 0.90 (0.40 to 0.60) | 1.0e-02, 2.0e-02 |  |" in lines
    assert "| all | QuACK | not measured: needs a GPU | | |" in lines
    assert all(any(name in line for line in lines) for name in OTHERS)
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1
