"""Checks that end as checks on a GPU may end, for tests/bench/test_gpu.py."""

import os
import subprocess
import sys
import time

import torch

from bench.gpu_parts import report as gpu_report
from bench.gpu_parts.report import Figures, Report


def ends_well(report: Report) -> Figures:
    report.at_most("time", 2.0, 1.0, "ms")
    return {"a": 1}


def raises(report: Report) -> Figures:
    report.keep({"before": 1})
    raise ValueError("broken")


def reads_out_of_bounds(report: Report) -> Figures:
    """The check itself ends; the error comes when the host next waits for the GPU, and then always."""

    def broken(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    gpu_report.DRY = False
    torch.cuda.synchronize = torch.cuda.empty_cache = broken
    return {"b": 2}


def hangs(report: Report) -> None:
    """It has started another process, as the check of the tests does."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(500)"])
    report.keep({"process": other.pid})
    time.sleep(500)


def dies(report: Report) -> None:
    report.keep({"before": 2})
    os.abort()
