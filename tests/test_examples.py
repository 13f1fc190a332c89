"""The examples run as they stand in the repository."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_bare_loop() -> None:
    command = [sys.executable, ROOT / "examples" / "bare_loop.py", "--steps", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["step 1", "step 2"]
