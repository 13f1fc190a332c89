"""Saves that fail or are killed at each call of libc."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import libc_faults
import pytest

SHIM = Path(__file__).parents[1] / "native" / "faults.c"


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.skipif(sys.platform != "linux" or shutil.which("gcc") is None, reason="needs glibc and gcc")
def test_no_fault_of_libc_leaves_no_state(tmp_path: Path) -> None:
    library = tmp_path / "faults.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-fno-builtin", "-o", library, SHIM, "-ldl"], check=True)
    command = [sys.executable, libc_faults.__file__, tmp_path / "states"]
    done = subprocess.run(
        command, env=os.environ | {"LD_PRELOAD": str(library)}, capture_output=True, text=True, timeout=1100
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
