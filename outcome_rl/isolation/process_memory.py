"""Memory figures of this process."""

import resource
import sys
from pathlib import Path


def status_kib(field: str) -> int:
    """KiB of a field of Linux's /proc/self/status, such as VmRSS (resident now) or VmHWM (resident at most).

    Raises:
        RuntimeError: there is no such field.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise RuntimeError(f"/proc/self/status has no field {field}")


def peak_mib() -> int:
    """Return the peak memory of this process in MiB."""
    if sys.platform == "linux":
        # ru_maxrss would include the parent's memory at the fork, such as the weights of a policy.
        return status_kib("VmHWM") // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (2**20 if sys.platform == "darwin" else 2**10)
