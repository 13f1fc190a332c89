"""The benchmark of sampled gradients: intervals of medians, and the table with losses that did not run."""

from math import comb
from typing import Any

import pytest

from bench.sampled import FLOOR, OTHERS, OURS, median_interval, table


@pytest.mark.parametrize("count", [*range(1, 12), 15, 40])
def test_an_interval_holds_the_median_with_its_confidence(count: int) -> None:
    low, high = median_interval([float(value) for value in range(count)][::-1])
    assert low + high == count - 1  # alike in rank from both ends

    def outside(rank: int) -> float:
        return float(2 * sum(comb(count, i) for i in range(rank)) / 2**count)

    rank = int(low) + 1
    assert rank == 1 or outside(rank) <= 0.05
    assert outside(rank + 1) > 0.05  # the next one would not hold it


def test_every_other_loss_is_named_with_its_ratio_or_the_reason() -> None:
    ours = {"ratio": 0.5, "from": 0.4, "to": 0.6, "error_hidden": 1e-2, "error_weight": 2e-2}
    rows: dict[str, Any] = {FLOOR: {"seconds": 1.0}, OURS: ours, f"{OURS}, sampled": ours | {"entries": 7.0}}
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
    assert f"| temperature 1 | {OURS}, sampled | 0.50 (0.40 to 0.60) | 1.0e-02, 2.0e-02 | 7 |" in lines
    assert "| temperature 1 | CCE | 0.90 (0.40 to 0.60) | 1.0e-02, 2.0e-02 |  |" in lines
    assert "| all | QuACK | not measured: needs a GPU | | |" in lines
    assert all(any(name in line for line in lines) for name in OTHERS)
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1
