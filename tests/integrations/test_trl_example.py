"""The example runs as it stands in the repository."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_trl_grpo(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "examples" / "trl_grpo.py", "--steps", "2"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    start, *steps, last = done.stdout.splitlines()
    assert re.search("bonus batch .* the column 'answer'$", start), start
    assert [line.split(":")[0] for line in steps] == ["step 1", "step 2"]
    counted = re.fullmatch(r"(\d+) outcomes of 32 questions counted, (\d+) solved", last)
    assert counted is not None, last
    assert int(counted[1]) >= 32 >= int(counted[2])
