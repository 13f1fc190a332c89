"""One task in a separate process, forked from a worker of `worker_pool`.

Whatever a task does to its process (threads, patched modules, closed descriptors, a fork that goes on, a crash) ends
with that process and those that it started, so that the next task finds the worker as it was loaded. A fork costs about
a millisecond; the import of the modules is paid once for each worker.
"""

import ctypes
import gc
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from outcome_rl.isolation import worker_process

_POLL_S = 0.02  # how late the end of a child that does not reply is noticed
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def in_own_process(answer: Callable[[Any], Mapping[str, Any]]) -> worker_process.Handler:
    """Return a handler that forks the worker for every task; the output of a task is dropped.

    Args:
        answer: maps a task to its reply, in the forked process.

    Returns:
        The handler. It returns the reply of `answer`, or a reply with an error message and the verdict "timeout"
        (killed at the limit) or "error" (the process ended without one line of JSON).
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded before the fork
    if libc is not None:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # a process whose parent ended becomes a child: see `_end`
    others = _children()  # that importing the module started; they are kept
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy the memory that it shares with the worker

    def reply(task: Any, limit_s: float) -> Mapping[str, Any]:
        deadline = time.monotonic() + limit_s
        alarm_s = signal.getitimer(signal.ITIMER_REAL)[0]  # the worker's, which a fork does not inherit
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setpgid(0, 0)
                if libc is not None:
                    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                signal.setitimer(signal.ITIMER_REAL, alarm_s)
                for fd in (reader, *worker_process.PRIVATE):
                    os.close(fd)
                nothing = os.open(os.devnull, os.O_WRONLY)
                for fd in (1, 2):  # a program may write commands to the terminal, or without end
                    os.dup2(nothing, fd)
                worker_process.write_line(writer, answer(task))
            finally:
                os._exit(0)
        os.close(writer)
        with suppress(OSError):
            os.setpgid(child, child)  # in both processes, since either may run first
        try:
            return _reply_of(child, reader, deadline)
        finally:
            _end(child, others)
            os.close(reader)

    return reply


def _reply_of(child: int, reader: int, deadline: float) -> Mapping[str, Any]:
    """Read all that a child process writes until it ends: one line of JSON."""
    content, ended = b"", False
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return {"verdict": "timeout", "error": "killed after the time limit"}
        if select.select([reader], [], [], min(left_s, _POLL_S))[0]:
            chunk = os.read(reader, 1 << 16)
            content += chunk
            if len(content) > worker_process.MAX_REPLY_BYTES:
                return {"verdict": "error", "error": f"its reply has more than {worker_process.MAX_REPLY_BYTES} bytes"}
            if not chunk:  # no process has the pipe any more
                break
        elif ended:
            break
        else:
            ended = os.waitpid(child, os.WNOHANG)[0] == child
    with suppress(ValueError, RecursionError):
        reply = json.loads(content)  # refuses a second line
        if isinstance(reply, dict):
            return reply
    return {"verdict": "error", "error": "its process ended without a reply of one line"}


def _end(child: int, others: Collection[int]) -> None:
    """Kill a task's process with its group and, on Linux, the processes of the task that have left the group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with suppress(ChildProcessError):  # it was waited for
        os.waitpid(child, 0)
    while strays := [pid for pid in _children() if pid not in others]:
        for pid in strays:
            os.kill(pid, signal.SIGKILL)
        for pid in strays:
            os.waitpid(pid, 0)


def _children() -> list[int]:
    """List the child processes of this one, of a single thread; empty where the system has no such list."""
    path = f"/proc/self/task/{os.getpid()}/children"
    return [int(pid) for pid in Path(path).read_text().split()] if os.path.exists(path) else []
