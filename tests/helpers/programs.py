"""Training programs outside this process, to be stopped at some row of their records or killed at random moments."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path


class Program:
    """A Python program that trains in a folder, outside this process, to be stopped once it has written so many rows.

    Args:
        run_dir: where it appends a row to `metrics.jsonl` at every step.
        arguments: of Python.
    """

    def __init__(self, run_dir: Path, arguments: list[str]) -> None:
        self.run_dir = run_dir
        self.rows_before = self.rows()
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def rows(self, stream: str = "metrics") -> int:
        path = self.run_dir / f"{stream}.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def wait_for(self, number: int, stream: str = "metrics") -> None:
        """Return once a stream has so many rows, or the process has ended."""
        while self.process.poll() is None and self.rows(stream) < number:
            time.sleep(0.002)

    def stop(self, signum: int, after_rows: int, stream: str = "metrics") -> tuple[int, str, str]:
        """Signal the whole process group, as a terminal does, once a stream has so many rows; return exit status,
        stdout and stderr."""
        self.wait_for(after_rows, stream)
        if self.process.poll() is None:
            os.killpg(self.process.pid, signum)
        return self.finish()

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
