"""Training programs outside this process, which stop at some row of their records or are killed at random moments."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import stopped_program
from stopped_program import Stop


class Program:
    """A module of Python that trains in a folder, outside this process.

    Args:
        run_dir: where it appends a row to `metrics.jsonl` at every step.
        module: its name and its arguments.
        stop: a signal that it sends itself.
        launcher: what Python runs the module with, torchrun for example.
    """

    def __init__(
        self, run_dir: Path, module: list[str], stop: Stop | None = None, launcher: tuple[str, ...] = ()
    ) -> None:
        script = ["-m"] if stop is None else [stopped_program.__file__, json.dumps(stop), "-m"]
        self.run_dir = run_dir
        self.rows_before = self.rows()
        self.process = subprocess.Popen(
            [sys.executable, *launcher, *script, *module],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def rows(self) -> int:
        path = self.run_dir / "metrics.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def wait_for(self, number: int) -> None:
        """Return once so many steps are recorded, or the process has ended."""
        while self.process.poll() is None and self.rows() < number:
            time.sleep(0.002)

    def kill(self, steps: int, chances: random.Random) -> None:
        """Kill at a random moment of those of so many steps that are left, or, once in ten, of the start; half the time
        with all of its processes."""
        if chances.random() < 0.1:
            time.sleep(chances.uniform(0, 10))
        else:
            self.wait_for(chances.randint(min(self.rows_before + 1, steps), steps))
            time.sleep(chances.uniform(0, 1))
        if chances.random() < 0.5 and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()

    def finish(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=600)
        return self.process.returncode, out, err
