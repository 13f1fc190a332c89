"""Workers start under the limits and the oddities of a host, or the error says why they do not."""

import base64
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outcome_rl import Explorer
from outcome_rl.isolation.worker_pool import WorkerPool

LOAD = ("outcome_rl.outcomes.isolated:load_isolated", "posixpath:join")
SCRIPT = """
import base64, os, pickle, resource
from outcome_rl.isolation.worker_pool import WorkerPool
memory_mib = 2048
{condition}
with WorkerPool({load}, workers=1, timeout_s=20, memory_mib=memory_mib) as pool:
    task = base64.b64encode(pickle.dumps(("a", "b"))).decode()
    os.write(1, repr(pool.ask([task])).encode())
"""
CONDITIONS = {
    "a limit below memory_mib": "resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)); memory_mib = 9 << 10",
    "closed standard streams": "os.close(0); os.close(2)",
    "a deleted working directory": "os.rmdir(os.getcwd())",
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_workers_start(condition: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    command = [sys.executable, "-c", SCRIPT.format(condition=CONDITIONS[condition], load=LOAD)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path / "folder", check=False)
    assert "'verdict': 'value'" in done.stdout, done.stderr
    assert done.returncode == 0


def test_workers_start_with_anything_in_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    path: list[Any] = [*sys.path, Path(), None]
    monkeypatch.setattr(sys, "path", path)
    with WorkerPool(LOAD, workers=1, timeout_s=20, memory_mib=2048) as pool:
        (reply,) = pool.ask([base64.b64encode(pickle.dumps(("a", "b"))).decode()])
    assert reply["verdict"] == "value"


@pytest.mark.parametrize(("executable", "reason"), [("", "sys.executable is empty"), ("/no/such/python",) * 2])
def test_an_error_says_why_they_do_not(executable: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(RuntimeError, match=f"workers do not start: .*{reason}"):
        WorkerPool(LOAD, workers=1, timeout_s=20, memory_mib=2048).ask(["task"])


def test_an_explorer_in_a_deleted_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    (tmp_path / "folder").rmdir()
    assert Explorer(outcome="posixpath:join").matcher.rule == "function/posixpath:join/1"
