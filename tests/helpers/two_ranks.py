"""A script of the tests in two processes, next to what it left when it ran in one."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch


def run_on_two_ranks(script: str, folder: Path, timeout: float) -> tuple[Any, Any, Any]:
    """Run a script under torchrun, and return what it saved: `1-0.pt` of one process before, `2-0.pt` and `2-1.pt` now.

    Args:
        script: path of a script that takes the folder as its argument.
        folder: where it saves `WORLD-RANK.pt`.
        timeout: seconds.
    """
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, script, str(folder)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    alone, first, second = (torch.load(folder / f"{name}.pt") for name in ("1-0", "2-0", "2-1"))
    return alone, first, second
