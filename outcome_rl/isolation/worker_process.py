"""A worker process of `worker_pool`: limits, streams, one reply for each task.

The pool runs it as `python -m outcome_rl.isolation.worker_process MEMORY_MIB ALARM_S MODULE:LOADER [ARGUMENT ...]`.
A task is a JSON line `{"task": ..., "limit_s": ...}`, and its reply a JSON line.
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
MAX_REPLY_BYTES = 1 << 20

Handler = Callable[[Any, float], Mapping[str, Any]]
"""Maps a task and its time limit in seconds to its reply."""

_to_json = json.JSONEncoder().encode  # not json.dumps, which a task may have replaced

PRIVATE: list[int] = []
"""Descriptors of this worker's pipes to the pool, which a child process of the worker must close."""


def serve(memory_mib: int, alarm_s: float, load: Callable[[], Handler]) -> None:
    """Answer tasks until the input ends.

    Args:
        memory_mib: limit of the address space, in MiB, or the limit of this machine if that is lower; macOS has none
            that works.
        alarm_s: longest time of a task whose parent was killed, in seconds.
        load: does slow set-up before the time limit starts, and returns the handler.
    """
    if sys.platform != "darwin":
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = memory_mib << 20 if hard == resource.RLIM_INFINITY else min(memory_mib << 20, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a parent that is gone reads no reply: end without a traceback
    # The pipes carry tasks and replies only: other input is empty, and other output goes to stderr.
    tasks, replies = os.dup(sys.stdin.fileno()), os.dup(sys.stdout.fileno())
    PRIVATE.extend((tasks, replies))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    parent = os.getppid()
    try:
        answer = load()
    except BaseException as error:
        reason = f"the worker raised {type(error).__name__}: {error}"[:300]
        write_line(replies, {"verdict": "error", "reason": reason})
        raise
    write_line(replies, {"ready": True})
    for line in _lines(tasks, parent):
        message = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, alarm_s)
        reply = answer(message["task"], message["limit_s"])
        signal.setitimer(signal.ITIMER_REAL, 0)
        write_line(replies, reply)


def write_line(fd: int, value: Any) -> None:
    """Write a value as one line of JSON."""
    rest = memoryview(_to_json(value).encode() + b"\n")
    while rest:
        rest = rest[os.write(fd, rest) :]


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
    # Not this module's own `serve`: a handler that imports this module by its name must find the same `PRIVATE`.
    from outcome_rl.isolation import worker_process

    module, _, loader = sys.argv[3].partition(":")
    load = partial(getattr(import_module(module), loader), *sys.argv[4:])
    worker_process.serve(int(sys.argv[1]), float(sys.argv[2]), load)
