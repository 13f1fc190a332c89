"""The script for a GPU: every part in small on the CPU, and results that survive whatever a check does."""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from processes import ends

from bench import gpu
from bench.baselines import BASELINES
from bench.gpu import PARTS, ROOT
from bench.loss_plans import gpu_plans

pytestmark = pytest.mark.offline
pytest.importorskip("triton", reason="Triton has no build for this platform")
WITH_GOALS = ("speed", "counts", "trainer")


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bench.gpu", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=550
    )


def run_checks(folder: Path, **limits: float) -> tuple[list[str], dict[str, Any]]:
    """Run checks of tests/helpers/gpu_checks.py; return the names of those that failed, and all results."""
    checks = {f"tests.helpers.gpu_checks:{name}": limit for name, limit in limits.items()}
    failed = gpu.run_part("injected", checks, folder, dry=True)
    return failed, json.loads((folder / "gpu-injected.json").read_text())["figures"]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_runs_in_small_and_leaves_a_result_with_its_goals(part: str, tmp_path: Path) -> None:
    done = run(part, "--dry", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.iterdir()
    assert path.name == f"gpu-{part}.json"
    result = json.loads(path.read_text())
    assert result["config"] == {"dry": True}
    assert all(result[name] for name in ("commit", "devices", "versions", "date"))
    checks, goals = result["figures"]["checks"], result["figures"]["goals"]
    assert list(checks) == list(PARTS[part])
    assert all(check["ok"] and check["figures"] for check in checks.values()), checks
    assert bool(goals) == (part in WITH_GOALS)
    assert {goal["met"] for goal in goals} <= {None}  # a CPU is not judged


PROGRAMME = re.findall(r"^(# \d)|^timeout (\d+) python3 -m (.*)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)


def test_a_call_of_the_programme_fits_ten_minutes() -> None:
    seconds: list[int] = []
    for heading, limit, _ in PROGRAMME:
        if heading:
            seconds.append(0)
        else:
            seconds[-1] += int(limit)
    assert len(seconds) == 3
    assert all(500 < each <= 590 for each in seconds)


class Parsed(Exception):
    """A command line was understood."""


@pytest.mark.parametrize("command", [command for _, _, command in PROGRAMME if command])
def test_a_command_of_the_programme_is_understood(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_args

    def stop(parser: argparse.ArgumentParser, *arguments: Any) -> None:
        raise Parsed(parse(parser, *arguments))

    module, *given = shlex.split(command)
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    monkeypatch.setattr(sys, "argv", [module, *given])
    with pytest.raises(Parsed) as found:
        import_module(module).main()
    (options,) = found.value.args
    if module == "bench.loss":
        assert any(options.sections in plan.name for plan in gpu_plans())
        assert {baseline.name for baseline in BASELINES}.issuperset(options.without)


def test_a_part_fits_ten_minutes_and_all_parts_eight_files() -> None:
    assert len(PARTS) <= 8
    for part, checks in PARTS.items():
        assert sum(checks.values()) <= 570
        module = import_module(f"bench.gpu_parts.{part}")
        assert all(callable(getattr(module, name)) for name in checks)


def test_an_asynchronous_error_ends_only_its_check(tmp_path: Path) -> None:
    failed, found = run_checks(tmp_path, ends_well=60, reads_out_of_bounds=60, raises=60, dies=60)
    assert failed == ["reads_out_of_bounds", "raises", "dies"]
    checks = found["checks"]
    assert checks["ends_well"]["ok"]
    assert "illegal memory access" in checks["reads_out_of_bounds"]["error"]
    assert checks["raises"]["error"] == "ValueError: broken"
    assert checks["dies"]["error"].startswith("ended with exit status -6")
    figures = [check["figures"] for check in checks.values()]
    assert figures == [{"a": 1}, {"b": 2}, {"before": 1}, {"before": 2}]
    assert [goal["goal"] for goal in found["goals"]] == ["time"]


def test_a_check_is_killed_at_its_limit_with_all_that_it_started(tmp_path: Path) -> None:
    failed, found = run_checks(tmp_path, hangs=40, ends_well=60)
    assert failed == ["hangs"]
    assert found["checks"]["hangs"]["error"] == "killed at its limit of 40 s"
    assert ends(found["checks"]["hangs"]["figures"]["process"])
    assert found["checks"]["ends_well"]["ok"]


def test_results_are_there_when_the_script_itself_is_killed(tmp_path: Path) -> None:
    checks = {f"tests.helpers.gpu_checks:{name}": 500 for name in ("ends_well", "hangs")}
    code = (
        f"import pathlib; from bench import gpu; gpu.run_part('p', {checks}, pathlib.Path({str(tmp_path)!r}), dry=True)"
    )
    script = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, start_new_session=True)
    path = tmp_path / "gpu-p.json"
    while not path.exists():
        assert script.poll() is None
        time.sleep(0.1)
    found = json.loads(path.read_text())["figures"]["checks"]
    children = Path(f"/proc/{script.pid}/task/{script.pid}/children").read_text().split()
    for group in (script.pid, *map(int, children)):
        os.killpg(group, 9)
    script.wait()
    assert found["ends_well"]["figures"] == {"a": 1}


def test_a_script_that_is_terminated_ends_its_check_and_leaves_what_it_found(tmp_path: Path) -> None:
    """As `timeout` ends it: a check that went on would hold the GPU while the next script is timed."""
    command = [sys.executable, "-m", "bench.gpu", "tests", "--dry", "--out", str(tmp_path)]
    script = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert script.stdout is not None
    while "kernel_tests" not in script.stdout.readline():
        assert script.poll() is None
    children = Path(f"/proc/{script.pid}/task/{script.pid}/children")
    while not (found := children.read_text().split()):
        time.sleep(0.01)
    time.sleep(1)  # until the script waits for it
    script.terminate()
    assert script.wait(30) == 1
    assert all(ends(int(child)) for child in found)
    check = json.loads((tmp_path / "gpu-tests.json").read_text())["figures"]["checks"]["kernel_tests"]
    assert not check["ok"]


def test_clocks_and_power_are_those_of_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    lines = "1980, 3201, 650.5, 61\\n[N/A], 3201, 1, 1\\n345, 3201, 90.5, 40\\n"
    smi.write_text(f"#!/bin/sh\nprintf '{lines}'\nexec sleep 100\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{smi.parent}{os.pathsep}{os.environ['PATH']}")
    _, found = run_checks(tmp_path, ends_well=60)
    clocks = found["checks"]["ends_well"]["clocks"]
    assert clocks["samples"] == 2
    assert clocks["sm_mhz"] == [345, 1162.5, 1980]
    assert clocks["power_w"] == [90.5, 370.5, 650.5]


def test_a_dry_run_leaves_no_result_among_the_others() -> None:
    done = run("counts", "--dry")
    assert done.returncode == 2
    assert "--dry needs --out" in done.stderr


def test_a_missed_goal_fails_the_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from bench.gpu_parts import report

    monkeypatch.setattr(report, "DRY", False)
    found = report.Report(tmp_path / "check.json")
    found.at_most("time", 2.0, 3.0, "ms")
    found.at_most("memory", 2.0, 2.0, "GiB")
    goals = json.loads(found.path.read_text())["goals"]
    assert [goal["met"] for goal in goals] == [False, True]
