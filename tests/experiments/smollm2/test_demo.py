"""The demo: what a method that cannot train leaves on the terminal."""

from pathlib import Path

import pytest

from experiments.smollm2 import demo


def test_a_method_that_fails_in_the_background_points_to_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in {
        "RUNS": tmp_path / "runs",
        "METHODS": {"first": "no_such_estimator", "second": "nor_this"},
        "make_model": lambda: None,
        "make_policy": lambda *_: None,
    }.items():
        monkeypatch.setattr(demo, name, value)
    assert demo.main([]) == 2
    shown, log = capfd.readouterr(), tmp_path / "runs" / "second.log"
    assert "no_such_estimator" in shown.err
    assert "nor_this" not in shown.err
    assert str(log) in shown.out
    assert f"outcome-rl train ended with status 2; see {log}" in shown.err
    assert "nor_this" in log.read_text()
