"""Result files of benchmarks: measurements in JSON, and everything that is needed to read or repeat them."""

import argparse
import hashlib
import subprocess
import time
from pathlib import Path
from typing import Any

import outcome_rl_kernels
from outcome_rl.environment import describe_environment
from outcome_rl.files import write_json

PACKAGES = (Path(__file__).resolve().parents[1], Path(outcome_rl_kernels.__file__).resolve().parent)
ROOT = PACKAGES[0].parent


def add_out(parser: argparse.ArgumentParser) -> None:
    """Add the option `--out`, which all benchmarks have."""
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("outcome-rl-bench"),
        metavar="DIR",
        help="folder of the result file (%(default)s)",
    )


def write_result(folder: Path, name: str, config: dict[str, Any], figures: Any) -> Path:
    """Write `NAME.json` with the configuration, the figures, the device, the versions and the commit; return its path.

    Args:
        folder: made if it does not exist.
        name: of the benchmark; an earlier file of that name is replaced.
        config: settings of the benchmark.
        figures: measurements; plain JSON, like `config`.
    """
    environment = describe_environment()
    path = folder / f"{name}.json"
    content = {
        "config": config,
        "figures": figures,
        "devices": environment["devices"],
        "versions": environment["versions"],
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
    }
    write_json(path, content)
    return path


def commit() -> str:
    """Return the checkout's commit, and whether files besides results differ from it; else a digest of the code."""
    head = _git("rev-parse", "HEAD") if (ROOT / ".git").exists() else None
    if head is None:
        return f"sources-{_digest()}"
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results")
    return head + (" with uncommitted changes" if changed else "")


def _git(*command: str) -> str:
    done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"git {' '.join(command)} failed, so the commit is unknown: {done.stderr.strip()}")
    return done.stdout.strip()


def _digest() -> str:
    """Return the SHA-256 of the names and contents of the packages' Python files, in order of their names."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            digest.update(str(path.relative_to(package.parent)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
