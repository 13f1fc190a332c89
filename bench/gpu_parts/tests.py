"""The kernels' tests on this GPU."""

import os
import subprocess
import sys
from importlib.util import find_spec

from bench.gpu_parts.report import DRY, Report, require
from bench.result_file import ROOT


def kernel_tests(report: Report) -> str:
    """Run the kernels' tests for a GPU, where pytest and hypothesis are installed; print them as they pass."""
    absent = [name for name in ("pytest", "hypothesis", "pytest_timeout") if find_spec(name) is None]
    if absent:
        return f"left out: {', '.join(absent)} not installed"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests/kernels"]
    command += ["-p", "no:cacheprovider", "--disable-warnings"]
    if DRY:
        command.append("--collect-only")
    elif find_spec("xdist") is not None:
        command += ["-n", "12"]  # most of their time is compilation
    lines = []
    with subprocess.Popen(command, cwd=ROOT, env=os.environ, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        for line in tests.stdout:
            if not DRY:
                print(line, end="", flush=True)
            lines.append(line.replace(f"{ROOT}/", ""))  # a record names no folder of a machine
            report.keep("".join(lines[-20:]))
    require(tests.returncode == 0, "".join(lines)[-4000:])
    return lines[-1].strip()
