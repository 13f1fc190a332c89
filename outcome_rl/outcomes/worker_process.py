"""A worker process of `worker_pool`: limits, streams, one reply for each task.

The pool runs it as `python -m outcome_rl.outcomes.worker_process MEMORY_MIB ALARM_S MODULE:LOADER [ARGUMENT ...]`.
A worker may be killed at any moment, and it ends with its parent: it exits when its input closes or its parent is gone,
and during a task the kernel's alarm ends it (a Python signal handler would wait for a long big-integer operation).
"""

import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

PARENT_POLL_S = 2.0


def serve(memory_mib: int, alarm_s: float, load: Callable[[], Callable[[Any], Mapping[str, Any]]]) -> None:
    """Answer tasks until the input ends.

    Args:
        memory_mib: limit of the address space, in MiB; macOS has none that works.
        alarm_s: longest time of a task whose parent was killed, in seconds.
        load: does slow set-up before the time limit starts, and returns a handler that maps a task to its reply.
    """
    if sys.platform != "darwin":
        resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a parent that is gone reads no reply: end without a traceback
    # The pipes carry tasks and replies only: other input is empty, and other output goes to stderr.
    tasks = os.dup(sys.stdin.fileno())
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    answer = load()
    replies.write(json.dumps({"ready": True}) + "\n")
    for line in _lines(tasks, os.getppid()):
        signal.setitimer(signal.ITIMER_REAL, alarm_s)
        reply = answer(json.loads(line))
        signal.setitimer(signal.ITIMER_REAL, 0)
        replies.write(json.dumps(reply) + "\n")


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


if __name__ == "__main__":
    module, _, loader = sys.argv[3].partition(":")
    serve(int(sys.argv[1]), float(sys.argv[2]), partial(getattr(import_module(module), loader), *sys.argv[4:]))
