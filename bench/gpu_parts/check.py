"""Run one check of `bench/gpu.py` in this process: `python -m bench.gpu_parts.check MODULE:FUNCTION FILE`.

The file is written at the start, whenever the check keeps something, and at the end, so that it holds all that was
found when this process is killed or dies of an error of the GPU.
"""

import sys
from importlib import import_module
from pathlib import Path

from bench.gpu_parts.report import Report


def main(check: str, file: str) -> None:
    """Import a check and run it."""
    module, _, function = check.partition(":")
    Report(Path(file)).run(lambda report: getattr(import_module(module), function)(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
