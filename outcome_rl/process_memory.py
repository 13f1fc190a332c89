"""Memory figures of this process, as Linux reports them."""

from pathlib import Path


def status_kib(field: str) -> int:
    """KiB of a field of /proc/self/status, such as VmRSS (resident now) or VmHWM (resident at most).

    Raises:
        RuntimeError: there is no such field.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise RuntimeError(f"/proc/self/status has no field {field}")
