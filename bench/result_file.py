"""Result files of benchmarks: measurements in JSON, and everything that is needed to read or repeat them."""

import argparse
import hashlib
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import outcome_rl
import outcome_rl_kernels
from outcome_rl.environment import describe_environment, package_versions
from outcome_rl.files.atomic import write_json

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (Path(outcome_rl.__file__).resolve().parent, Path(outcome_rl_kernels.__file__).resolve().parent)


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
    """Write `NAME.json` with the configuration, the results, and where they come from; return its path.

    Args:
        folder: made if it does not exist.
        name: of the benchmark; an earlier file of that name is replaced.
        config: settings of the benchmark.
        figures: measurements; plain JSON, like `config`.
    """
    path = folder / f"{name}.json"
    write_json(path, {"config": config, "figures": figures, **provenance(describe_environment()["devices"])})
    return path


def provenance(devices: list[str]) -> dict[str, Any]:
    """Return what every result names: devices, versions, commit and date."""
    return {
        "devices": devices,
        "versions": package_versions(),
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def measured_on(record: Mapping[str, Any]) -> str:
    """Return the sentence that says where a result file comes from."""
    device, torch_version = record["devices"][-1], record["versions"]["torch"]
    return f"Measured on {device}; PyTorch {torch_version}; {record['date']}; commit {record['commit']}."


def commit() -> str:
    """Return the checkout's commit, and whether files besides results differ from it.

    Without a checkout, or where git refuses to read it, return "unknown" and a digest of the code.
    """
    head = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results")
    if head is None or changed is None:
        return f"unknown, sources {_digest()}"
    return head + (" with uncommitted changes" if changed else "")


def _git(*command: str) -> str | None:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        return None
    done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def _digest() -> str:
    """Return the SHA-256 of the names and contents of the packages' Python files, in order of their names."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            digest.update(str(path.relative_to(package.parent)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
