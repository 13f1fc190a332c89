"""Processes that answer tasks one at a time, that can be killed, and that are replaced when they die.

A process boundary is the only bound that holds for code that may loop, fill the memory or end its process. Each worker
is a plain subprocess of `worker_process`; the parent measures the time of a task and kills the worker at the limit.
Tasks and replies are JSON lines; a worker has one task at a time, and only its own loop writes replies. A reply with a
"reason" is a failure, and its worker is replaced. If a worker fails on its first task, that task gets the error; a
later task goes to a new worker, because an earlier one may have caused the failure.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection
from typing import Any

from outcome_rl.isolation.closing import Closing

START_TIMEOUT_S = 120.0
"""Time limit for a worker to start: a second, or many on a busy machine. No task's time includes it."""

MAX_FAILED_STARTS = 3


class WorkerPool(Closing):
    """Several workers of one command, started at the first task.

    The pool works from any thread (calls take turns), as a context manager, and after a fork (the child starts its own
    workers). Workers end with `close`, with the interpreter, or soon after the parent is killed.

    Args:
        load: "module:function" and texts: a worker calls the function with them before the time limit starts; it
            returns a handler that maps a task and its time limit to its reply.
        workers: number of processes, by default one per CPU that this process may use.
        timeout_s: time limit of a task, in seconds.
        memory_mib: address space of a worker, in MiB.
        grace_s: seconds by which a handler that keeps the time limit itself may exceed it.

    Raises:
        ValueError: if a number is not positive.
    """

    def __init__(
        self, load: Sequence[str], *, workers: int | None, timeout_s: float, memory_mib: int, grace_s: float = 0.0
    ) -> None:
        self.workers = usable_cores() if workers is None else workers
        self.timeout_s = timeout_s
        self.memory_mib = memory_mib
        self.grace_s = grace_s
        for name in ("workers", "timeout_s", "memory_mib"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive; got {getattr(self, name)!r}.")
        orphan_s = 2 * timeout_s + 5  # how long a worker may outlive a parent that was killed in the middle of a task
        # -P: no module of the working directory, which may hold downloaded data, stands in for one of the library's.
        worker = "outcome_rl.isolation.worker_process"
        self.command = [sys.executable, "-P", "-m", worker, str(memory_mib), str(orphan_s), *load]
        self._adopt()
        _POOLS.add(self)

    def close(self) -> None:
        """Stop the workers; a later call starts new ones."""
        with self._lock:
            _kill_all(self.running, self._pid)

    def _adopt(self) -> None:
        """Begin without workers: after a fork they are the parent's, and a thread that is gone may hold the lock."""
        self._lock = threading.Lock()
        self.running: list[_Worker] = []
        self._pid = os.getpid()
        self._failed_starts = 0
        weakref.finalize(self, _kill_all, self.running, self._pid)  # also at interpreter exit

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the pool for one call; after an exception the workers are gone, and with them replies still to come."""
        with self._lock:
            try:
                yield
            except BaseException:  # Ctrl-C too
                _kill_all(self.running, self._pid)
                raise

    def ask(self, tasks: Sequence[Any], deadline: float = float("inf")) -> list[dict[str, Any]]:
        """Return the replies to tasks, which JSON can hold.

        A task gets the verdict "timeout" if its worker was killed at the time limit, and "error" if its worker died;
        both have a reason. A task that has not begun at the `deadline`, by
        `time.monotonic()`, gets "cut".

        Args:
            tasks: N tasks.
            deadline: time after which no task begins.

        Raises:
            RuntimeError: if the workers do not start.
        """
        with self._turn():
            replies = dict(self._answer(tasks, deadline, self.timeout_s))
        return [replies[i] for i in range(len(tasks))]

    def _answer(self, tasks: Sequence[Any], deadline: float, limit_s: float) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the index of every task with its reply, in the order of completion; see `ask`."""
        waiting = deque(enumerate(tasks))
        while waiting or any(worker.task is not None for worker in self.running):
            if waiting and time.monotonic() >= deadline:
                yield from ((i, {"verdict": "cut"}) for i, _ in waiting)
                waiting.clear()
                continue
            busy = sum(worker.task is not None for worker in self.running)
            while len(self.running) < min(self.workers, busy + len(waiting)):
                self.running.append(_Worker(self.command))
            for worker in self.running:
                idle = worker.ready and worker.task is None
                if waiting and idle and worker.send(*waiting[0], limit_s, self.grace_s):
                    waiting.popleft()
            for worker, reply in _replies(self.running):
                task, was_ready, is_first = worker.task, worker.ready, not worker.replied
                if not was_ready and "reason" not in reply:
                    worker.ready, worker.deadline = True, float("inf")
                    self._failed_starts = 0
                    continue
                worker.task, worker.deadline, worker.replied = None, float("inf"), True
                if "reason" in reply:
                    worker.kill()
                    self.running.remove(worker)
                    self._failed_starts += not was_ready
                    if self._failed_starts >= MAX_FAILED_STARTS:
                        raise RuntimeError(
                            f"workers do not start: {reply['reason']}, {self._failed_starts} times in a row. "
                            f"Run `{' '.join(self.command)}` to see the error that they print to stderr."
                        )
                if task is None:
                    continue
                if "reason" in reply and reply["verdict"] == "error" and not is_first:
                    waiting.appendleft((task, tasks[task]))  # an earlier task may have damaged the worker
                else:
                    yield task, reply


_POOLS: "weakref.WeakSet[WorkerPool]" = weakref.WeakSet()


def _after_fork() -> None:
    for pool in _POOLS:
        pool._adopt()


os.register_at_fork(after_in_child=_after_fork)


class _Worker:
    """Worker process with the task that it is doing."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must reach only the caller
            env=_environment(),
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.ready = self.replied = False  # to the request to start, and to a task
        self.task: int | None = None  # index of the task that it is doing
        self.deadline = time.monotonic() + START_TIMEOUT_S
        self._buffer = b""

    def send(self, index: int, task: Any, limit_s: float, grace_s: float) -> bool:
        """Send a task; return False if the process has died."""
        message = json.dumps({"task": task, "limit_s": limit_s})
        try:
            self.stdin.write(message.encode() + b"\n")
            self.stdin.flush()
        except BrokenPipeError:
            return False
        self.task, self.deadline = index, time.monotonic() + limit_s + grace_s
        return True

    def receive(self) -> dict[str, Any] | None:
        """Read available bytes and return the reply, or None if its line is not complete."""
        chunk = os.read(self.stdout.fileno(), 1 << 16)
        if not chunk:
            return {"verdict": "error", "reason": f"the worker ended with status {self.process.wait()}"}
        self._buffer += chunk
        if not self._buffer.endswith(b"\n"):
            return None
        line, self._buffer = self._buffer, b""
        return dict(json.loads(line))

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # processes that the task started, too
        self.process.kill()
        self.process.wait()
        for pipe in (self.stdin, self.stdout):
            with suppress(BrokenPipeError):  # what is left of a task
                pipe.close()


def _replies(pool: list[_Worker]) -> list[tuple[_Worker, dict[str, Any]]]:
    """Wait for the next replies; a worker past its deadline gets a timeout reply."""
    first_deadline = min(worker.deadline for worker in pool)
    wait_s = None if first_deadline == float("inf") else max(0.0, first_deadline - time.monotonic())
    ready = connection.wait([worker.stdout.fileno() for worker in pool], wait_s)
    received = [(worker, worker.receive()) for worker in pool if worker.stdout.fileno() in ready]
    replies = [(worker, reply) for worker, reply in received if reply]
    now = time.monotonic()
    replied = [worker for worker, _ in replies]
    for worker in pool:
        if worker.deadline < now and worker not in replied:
            limit = "the time limit" if worker.ready else f"{START_TIMEOUT_S:g} s to start"
            replies.append((worker, {"verdict": "timeout", "reason": f"killed after {limit}"}))
    return replies


def _kill_all(pool: list[_Worker], pid: int) -> None:
    if os.getpid() == pid:
        for worker in pool:
            worker.kill()
        pool.clear()


def _environment() -> dict[str, str]:
    """Return an environment without the parent's secrets: only names that programs need to start are inherited."""
    inherited = {name: value for name, value in os.environ.items() if name in _INHERITED or name.startswith("LC_")}
    # Results of sympy may depend on the order of sets; threads would need address space for nothing.
    fixed = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return inherited | fixed | {"PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path)}


_INHERITED = frozenset(
    ("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME")
)


def usable_cores() -> int:
    """Return the number of cores that this process may run on; a container may have fewer than the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
