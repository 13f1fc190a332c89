"""Whether a process of a test has ended."""

import time
from pathlib import Path


def ends(pid: int, within_s: float = 15) -> bool:
    """Return whether a process ends, or waits to be collected by whoever adopted it: a kill takes its time."""
    deadline = time.monotonic() + within_s
    while is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
