"""Results of benchmarks as data files: figures, and what is needed to read or repeat them."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from outcome_rl.environment import describe_environment

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"


def write_result(name: str, config: dict[str, Any], figures: Any) -> Path:
    """Write `bench/results/NAME.json` with the configuration, the figures, the device, the versions and the commit.

    Raises:
        RuntimeError: the checkout's commit cannot be told; a result that names no code is worth nothing.
    """
    environment = describe_environment()
    path = RESULTS / f"{name}.json"
    content = {
        "config": config,
        "figures": figures,
        "devices": environment["devices"],
        "versions": environment["versions"],
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def commit() -> str:
    """The checkout's commit, and whether files differ from it."""

    def git(*command: str) -> str:
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"git {' '.join(command)} failed, so the commit is unknown: {done.stderr.strip()}")
        return done.stdout.strip()

    changed = [line for line in git("status", "--porcelain", "--untracked-files=no").splitlines() if line]
    return git("rev-parse", "HEAD") + (" with uncommitted changes" if changed else "")
