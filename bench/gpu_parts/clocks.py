"""Clocks, power and temperature of a GPU while a check runs, from `nvidia-smi`."""

import shutil
import statistics
import subprocess
from types import TracebackType
from typing import Any

FIELDS = {
    "sm_mhz": "clocks.sm",
    "memory_mhz": "clocks.mem",
    "power_w": "power.draw",
    "celsius": "temperature.gpu",
}
PERIOD_MS = 500


class Clocks:
    """Samples of the first visible GPU in a `with` block; nothing where there is no `nvidia-smi`."""

    def __enter__(self) -> "Clocks":
        self._lines: list[str] = []
        self._sampler = None
        if shutil.which("nvidia-smi"):
            query = f"--query-gpu={','.join(FIELDS.values())}"
            command = ["nvidia-smi", "--id=0", query, "--format=csv,noheader,nounits", f"--loop-ms={PERIOD_MS}"]
            self._sampler = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, process_group=0
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._sampler is not None:
            self._sampler.terminate()
            self._lines = self._sampler.communicate()[0].splitlines()

    def summary(self) -> dict[str, Any] | None:
        """Return least, median and most of every field; None without samples."""
        samples = [numbers for line in self._lines if (numbers := _numbers(line)) is not None]
        if not samples:
            return None
        columns = zip(FIELDS, zip(*samples, strict=True), strict=True)
        found = {name: [min(column), statistics.median(column), max(column)] for name, column in columns}
        return {"samples": len(samples), **found}


def _numbers(line: str) -> list[float] | None:
    try:
        numbers = [float(cell) for cell in line.split(",")]
    except ValueError:  # a field that this GPU does not have, or half a line
        return None
    return numbers if len(numbers) == len(FIELDS) else None
