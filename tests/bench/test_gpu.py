"""The script for a GPU, in small, on the CPU: every check runs, and leaves a record with the goals."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gpu import PARTS, ROOT

pytest.importorskip("triton", reason="Triton has no build for this platform")
GOALS = {
    "correctness": {},
    "counts": {
        "group_advantages of 256 x 8, no pair new": 60,
        "group_advantages of 256 x 8, one in nine pair new": 60,
        "group_advantages of 256 x 8, every pair new": 60,
    },
    "speed": {
        "loss, all tokens": 72,
        "loss, all tokens, over the fastest baseline": 1,
        "memory of the loss beyond inputs and gradients, all tokens": 2,
        "loss, 45 % dead": 42,
        "loss, 45 % dead, over the fastest baseline": 1,
        "memory of the loss beyond inputs and gradients, 45 % dead": 2,
    },
    "variants": {},
    "trainer": {
        "synchronisations besides rollout/decode_loop.py, update/updater.py: _update, update/totals.py: metrics": 0
    },
}


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "bench/gpu.py", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=550
    )


def test_every_part_runs_in_small_and_is_recorded_with_its_goals(tmp_path: Path) -> None:
    done = run("all", "--dry", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    for part in PARTS:
        record = json.loads((tmp_path / f"gpu-{part}.json").read_text())
        assert record["config"] == {"dry": True}
        assert record["commit"]
        assert record["devices"]
        checks, goals = record["figures"]["checks"], record["figures"]["goals"]
        assert checks
        assert all(check["ok"] and check["figures"] for check in checks.values()), checks
        assert {goal["goal"]: goal["expected"] for goal in goals} == GOALS[part]
        assert {goal["met"] for goal in goals} <= {None}  # a CPU is not judged
        assert f"wrote {tmp_path / f'gpu-{part}.json'}" in done.stdout


def test_a_dry_run_leaves_no_record_among_the_others(tmp_path: Path) -> None:
    done = run("counts", "--dry")
    assert done.returncode == 2
    assert "--dry needs --out" in done.stderr


def test_a_check_that_fails_and_a_goal_that_is_missed_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.gpu_parts import report

    def breaks(found: report.Report) -> None:
        raise ValueError("broken")

    def slow(found: report.Report) -> None:
        found.at_most("time", 2.0, 3.0, "ms")
        found.at_most("memory", 2.0, 2.0, "GiB")

    monkeypatch.setattr(report, "DRY", False)
    monkeypatch.setattr(report, "release", lambda: None)
    found = report.Report()
    for check in (breaks, slow):
        found.run(check)
    assert found.failed == ["breaks", "time"]
    assert found.checks["breaks"]["error"] == "ValueError: broken"
    assert [goal["met"] for goal in found.goals] == [False, True]
