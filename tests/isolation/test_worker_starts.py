"""Workers start under the limits and the oddities of a host, or the error says why they do not."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import base64, os, pickle, resource, sys
from pathlib import Path
from outcome_rl.isolation.worker_pool import WorkerPool
memory_mib, name = 2048, "posixpath:join"
{condition}
load = ("outcome_rl.outcomes.isolated:load_isolated", name)
with WorkerPool(load, workers=1, timeout_s=20, memory_mib=memory_mib) as pool:
    task = base64.b64encode(pickle.dumps(("a", "b"))).decode()
    os.write(1, repr(pool.ask([task])).encode())
"""
CONDITIONS = {
    "a limit below memory_mib": "resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)); memory_mib = 9 << 10",
    "closed standard error": "os.close(2)",
    "closed standard streams": "os.close(0); os.close(2)",
    "a deleted working directory": "os.rmdir(os.getcwd())",
    "a path object in sys.path": "sys.path.append(Path('.'))",
    "no text in sys.path": "sys.path.append(None)",
}
REASONS = {
    "sys.executable = ''": "sys.executable is empty",
    "sys.executable = '/no/such/python'": "/no/such/python",
    "name = 'no_such_module:f'": "no_such_module",
}


def run(condition: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT.format(condition=condition)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_workers_start(condition: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    done = run(CONDITIONS[condition], tmp_path / "folder")
    assert "'verdict': 'value'" in done.stdout, done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("condition", REASONS)
def test_an_error_says_why_they_do_not(condition: str, tmp_path: Path) -> None:
    done = run(condition, tmp_path)
    assert done.returncode == 1
    last = done.stderr.rstrip().splitlines()[-1]
    assert last.startswith("RuntimeError: workers do not start: ")
    assert REASONS[condition] in last.partition("Run `")[0]  # behind it is the command, which names the function


def test_an_explorer_in_a_deleted_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    explorers = "Explorer(); os.rmdir(os.getcwd()); Explorer(outcome='posixpath:join')"
    code = f"import os; from outcome_rl import Explorer; {explorers}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "folder", capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
