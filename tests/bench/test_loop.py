"""The plain loop trains as ours does, which is checked before either is timed."""

import json
from pathlib import Path

import pytest

from outcome_rl.bench import loop
from outcome_rl.bench.loop import PARTS, PlainLoop

SMALL = ["data.train_batch_size=4", "data.train_max_samples=8", "data.val_max_samples=2", "rollout.n=4"]


def test_small_loops_are_compared_timed_and_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop.main(["--rounds", "2", "--out", str(tmp_path), "--set", *SMALL])
    record = json.loads((tmp_path / "loop-cpu.json").read_text())
    figures = record["figures"]
    assert 0 <= figures["error"] < loop.WORST_ERROR
    for name in loop.LOOPS:
        assert figures["steps"][name]["rounds"] == 2
        assert set(figures["parts_ms"][name]) == set(PARTS)
        assert sum(figures["parts_ms"][name].values()) > 0
    assert record["config"]["settings"] == SMALL
    shown = capsys.readouterr().out
    assert "largest relative difference of loss and gradient" in shown
    assert "times the steps/s of the plain loop.\n\nwrote " in shown


def test_a_loop_that_does_something_else_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    own = PlainLoop.loss
    monkeypatch.setattr(PlainLoop, "loss", lambda *arguments: 1.01 * own(*arguments))
    monkeypatch.setattr(loop, "interleaved_times", lambda *_, **__: pytest.fail("timed before the comparison"))
    with pytest.raises(ArithmeticError, match="loss and gradient norm of the plain loop and of ours differ"):
        loop.measure(1, 1, SMALL)


def test_the_table_follows_from_the_figures() -> None:
    medians = {"outcome_rl": 500.0, "plain": 1000.0}
    times = {name: {"median_ms": ms, "p20_ms": 0.9 * ms, "p80_ms": 1.1 * ms} for name, ms in medians.items()}
    parts = {name: dict.fromkeys(PARTS, 100.0) for name in times}
    shown = loop.table({"steps": times, "parts_ms": parts})
    assert "| outcome_rl | 2.00 | 500 (450 to 550) | 100 | 100 | 100 | 100 |" in shown
    assert shown.endswith("2.00 times the steps/s of the plain loop.")
