"""Rounds, shares of the time, ratios with their intervals, and what counts as peak memory."""

import sys
import time
from math import comb

import pytest
import torch

from outcome_rl.bench.measure import LEAST_ROUNDS, interleaved_times, median_interval, peak_mib, ratio_to, summary

CPU = torch.device("cpu")


def test_the_summary_is_median_and_percentiles() -> None:
    assert summary([5.0, 1.0, 3.0, 2.0, 4.0, 6.0]) == {"median_ms": 3.5, "p20_ms": 2.0, "p80_ms": 5.0, "rounds": 6}
    assert summary([7.0]) == {"median_ms": 7.0, "p20_ms": 7.0, "p80_ms": 7.0, "rounds": 1}


def test_rounds_are_interleaved_and_a_slow_call_sits_out_after_its_share() -> None:
    order: list[str] = []

    def slow() -> None:
        order.append("slow")
        time.sleep(0.02)

    times = interleaved_times(
        {"fast": lambda: order.append("fast"), "slow": slow}, CPU, warmups=1, rounds=20, seconds=0.1
    )
    assert times["fast"]["rounds"] == 20
    assert times["slow"]["rounds"] == LEAST_ROUNDS
    assert times["slow"]["median_ms"] >= 20
    assert order[:2] == ["fast", "slow"]  # the warm-ups
    rounds = [set(order[2 * i : 2 * i + 2]) for i in range(1, LEAST_ROUNDS + 1)]
    assert rounds == [{"fast", "slow"}] * LEAST_ROUNDS


@pytest.mark.parametrize("count", [*range(1, 12), 15, 40])
def test_an_interval_holds_the_median_with_its_confidence(count: int) -> None:
    low, high = median_interval([float(value) for value in range(count)][::-1])
    assert low + high == count - 1  # alike in rank from both ends

    def outside(rank: int) -> float:
        return float(2 * sum(comb(count, i) for i in range(rank)) / 2**count)

    rank = int(low) + 1
    assert rank == 1 or outside(rank) <= 0.05
    assert outside(rank + 1) > 0.05  # the next one would not hold it


def test_a_ratio_pairs_a_time_with_the_floor_of_its_round() -> None:
    assert ratio_to([1.0, 10.0, 100.0, 1e9], [2.0, 30.0, 400.0]) == {"ratio": 3.0, "from": 2.0, "to": 4.0}


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_peak_memory_sees_what_is_freed_again_and_not_what_was_there() -> None:
    resident = torch.ones(2**25)  # 128 MiB before the call

    def call() -> float:
        return float(torch.ones(2**24).sum() + resident[0])  # 64 MiB, freed at the end

    peak = peak_mib(call, CPU)
    if peak is None:
        pytest.skip("this system does not let a process reset its high-water mark")
    assert 60 <= peak <= 80
    assert (peak_mib(lambda: None, CPU) or 0) < 16
