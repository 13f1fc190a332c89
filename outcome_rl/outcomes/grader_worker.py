"""Worker process for math-verify: reads pairs of answers and writes verdicts, one JSON line each.

`outcome_rl.outcomes.grader` runs it as `python -m outcome_rl.outcomes.grader_worker MEMORY_MIB ALARM_S`. It may be
killed at any moment, and it ends with its parent: it exits when its input closes or its parent is gone, and during a
computation the kernel's alarm ends it (a Python signal handler would wait for a long big-integer operation).
"""

import json
import logging
import os
import resource
import select
import signal
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from outcome_rl.process_memory import status_kib

PARENT_POLL_S = 2.0
MIB = 1 << 20


def main() -> None:
    """Serve verdicts until the input ends."""
    memory_mib, alarm_s = int(sys.argv[1]), float(sys.argv[2])
    if sys.platform != "darwin":  # macOS has no working limit on the address space
        resource.setrlimit(resource.RLIMIT_AS, (memory_mib * MIB, memory_mib * MIB))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # Output that libraries print goes to stderr: the pipe carries verdicts only.
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    logging.disable(logging.CRITICAL)  # math-verify logs every answer that it cannot parse
    judge("1", "1")  # load sympy and the grammar now, before the parent starts to measure time
    replies.write(json.dumps({"ready": True}) + "\n")
    parent = os.getppid()
    for line in _lines(sys.stdin.fileno(), parent):
        gold, prediction = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, alarm_s)
        equal = judge(gold, prediction) or judge(prediction, gold)
        signal.setitimer(signal.ITIMER_REAL, 0)
        peak_mib = _peak_mib()
        # math-verify catches MemoryError and returns "different", so that verdict is not trusted near the limit.
        if not equal and peak_mib > memory_mib / 2:
            reply = {"verdict": "error", "reason": f"used {peak_mib} MiB of at most {memory_mib} MiB"}
        else:
            reply = {"verdict": "equal" if equal else "different"}
        replies.write(json.dumps(reply) + "\n")


def judge(gold: str, prediction: str) -> bool:
    """Return math-verify's verdict in verl's form: gold as LaTeX, prediction as expression or LaTeX, both boxed."""
    from math_verify import verify

    return bool(verify(_parse(gold, "gold"), _parse(prediction, "prediction"), timeout_seconds=None))


@lru_cache(maxsize=4096)
def _parse(answer: str, role: str) -> list[Any]:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    targets = (LatexExtractionConfig(),) if role == "gold" else (ExprExtractionConfig(), LatexExtractionConfig())
    parsed: list[Any] = parse(f"\\boxed{{{answer}}}", targets, parsing_timeout=None)
    return parsed


def _lines(fd: int, parent: int) -> Iterator[bytes]:
    """Yield the lines of a pipe until it closes or the parent dies (a fork of the parent may keep the pipe open)."""
    buffer = b""
    while os.getppid() == parent:
        if not select.select([fd], [], [], PARENT_POLL_S)[0]:
            continue
        chunk = os.read(fd, 1 << 16)
        if not chunk:
            return
        *lines, buffer = (buffer + chunk).split(b"\n")
        yield from lines


def _peak_mib() -> int:
    """Return the peak memory of this process in MiB."""
    if sys.platform == "linux":
        # ru_maxrss would include the parent's memory at the fork, such as the weights of a policy.
        return status_kib("VmHWM") // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (MIB if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()
