"""Memory figures of this process."""

from pathlib import Path


def status_kib(field: str) -> int:
    """KiB of a field of Linux's /proc/self/status, such as VmRSS (resident now) or VmHWM (resident at most).

    `ru_maxrss` would include the parent's memory at the fork, such as the weights of a policy.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(dict(line.split(":", 1) for line in lines)[field].split()[0])
