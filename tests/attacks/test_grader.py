"""Attacks on the processes of math-verify: by the working directory, for secrets, and by texts that never end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outcome_rl.outcomes.grader import MathVerifyPool


def test_no_module_of_the_working_directory_is_imported(tmp_path: Path) -> None:
    for name in ("resource", "json", "select", "sympy", "outcome_rl"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w'); raise SystemExit")
    code = (
        "import sys; sys.path[:] = [place for place in sys.path if place]\n"
        "from outcome_rl.outcomes.grader import MathVerifyPool\n"
        "with MathVerifyPool(1) as pool: print(pool.compare([('1/2', '0.5')]))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.stdout == "['equal']\n", done.stderr
    assert not (tmp_path / "imported").exists()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads the environment of a process from /proc")
def test_workers_inherit_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "DATABASE_URL"):
        monkeypatch.setenv(name, "sekret")
    with MathVerifyPool(1) as pool:
        assert pool.compare([("1/2", "0.5")]) == ["equal"]
        environment = Path(f"/proc/{pool._pool[0].process.pid}/environ").read_bytes()
    assert b"PATH=" in environment
    assert b"sekret" not in environment
