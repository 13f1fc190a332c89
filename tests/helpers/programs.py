"""Training programs outside this process, which stop at some row of their records."""

import json
import os
import subprocess
import sys

import stopped_program
from stopped_program import Stop


class Program:
    """A module of Python that trains, outside this process.

    Args:
        module: its name and its arguments.
        stop: a signal that it sends itself.
        launcher: what Python runs the module with, torchrun for example.
    """

    def __init__(self, module: list[str], stop: Stop | None = None, launcher: tuple[str, ...] = ()) -> None:
        script = ["-m"] if stop is None else [stopped_program.__file__, json.dumps(stop), "-m"]
        self.process = subprocess.Popen(
            [sys.executable, *launcher, *script, *module],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=600)
        return self.process.returncode, out, err
