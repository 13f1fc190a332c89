"""math-verify in worker processes that can be killed.

math-verify evaluates text that a model wrote: `9^{9^{9}}` froze a process for ten minutes with its timeouts off, and
with them on it needs the main thread and takes over the caller's alarm signal. Only a process boundary is safe, so each
worker (`grader_worker`) is a plain subprocess with a memory limit; the parent measures its time and kills it at the
limit. A pair without a verdict is "timeout" or "error", logged, and never silently "different".
"""

import json
import logging
import os
import selectors
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

logger = logging.getLogger(__name__)

Verdict = Literal["equal", "different", "timeout", "error"]
Pair = tuple[str, str]

START_TIMEOUT_S = 120.0
"""Time limit for a worker to load sympy: a second, or many on a busy machine. No pair's time includes it."""

MAX_FAILED_STARTS = 3
MAX_CACHED_PAIRS = 1 << 18
MAX_LOGGED_CHARS = 200


class MathVerifyPool:
    """Compare pairs of answers with math-verify, several at a time; no pair can hang or crash the caller.

    Processes start at the first pair. The pool works from any thread (calls take turns), as a context manager, and
    after a fork (the child starts its own workers). Workers end with `close`, with the interpreter, or soon after the
    parent is killed.

    Args:
        workers: number of processes, by default one per CPU that this process may use.
        timeout_s: time limit of a pair, both directions together, in seconds.
        memory_mib: address space of a worker, in MiB.

    Raises:
        ValueError: if an argument is not positive.
    """

    def __init__(self, workers: int | None = None, timeout_s: float = 5.0, memory_mib: int = 2048) -> None:
        self.workers = _cpu_count() if workers is None else workers
        self.timeout_s = timeout_s
        self.memory_mib = memory_mib
        for name in ("workers", "timeout_s", "memory_mib"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive; got {getattr(self, name)!r}.")
        orphan_s = 2 * timeout_s + 5  # how long a worker may outlive a parent that was killed in the middle of a pair
        self._command = [sys.executable, "-m", "outcome_rl.outcomes.grader_worker", str(memory_mib), str(orphan_s)]
        self._cache: dict[Pair, Verdict] = {}
        self._lock = threading.Lock()
        self._adopt()

    def compare(self, pairs: Sequence[Pair], progress: Callable[[int, int], None] | None = None) -> list[Verdict]:
        """Compare pairs of answer texts; a pair is "equal" if math-verify accepts it in either direction.

        Args:
            pairs: answer texts, without `\\boxed{}`.
            progress: called as `progress(done, total)` after each pair.

        Returns:
            One verdict per pair: "equal", "different", "timeout" (its worker was killed), or "error" (its worker died
            or came near its memory limit). The last two are logged as warnings with their reason, and never cached.

        Raises:
            RuntimeError: if the workers do not start.
        """
        keys: list[Pair] = [(a, b) if a <= b else (b, a) for a, b in pairs]
        with self._lock:
            if self._pid != os.getpid():  # forked: the workers and their pipes are the parent's
                self._adopt()
            verdicts: dict[Pair, Verdict] = {key: self._cache[key] for key in keys if key in self._cache}
            todo = [key for key in dict.fromkeys(keys) if key not in verdicts]
            try:
                for judged, (pair, verdict) in enumerate(self._judge(todo), start=1):
                    verdicts[pair] = verdict
                    if verdict in ("equal", "different"):
                        self._cache[pair] = verdict
                    if progress is not None:
                        progress(judged, len(todo))
            except BaseException:  # Ctrl-C too: a reply still to come must not reach a later call
                _kill_all(self._pool, self._pid)
                raise
            while len(self._cache) > MAX_CACHED_PAIRS:
                del self._cache[next(iter(self._cache))]
        return [verdicts[key] for key in keys]

    def close(self) -> None:
        """Stop the workers; a later `compare` starts new ones."""
        with self._lock:
            _kill_all(self._pool, self._pid)

    def __enter__(self) -> "MathVerifyPool":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _adopt(self) -> None:
        """Reset to no workers, owned by the current process."""
        self._pool: list[_Worker] = []
        self._pid = os.getpid()
        self._failed_starts = 0
        weakref.finalize(self, _kill_all, self._pool, self._pid)  # also at interpreter exit

    def _judge(self, todo: Iterable[Pair]) -> Iterator[tuple[Pair, Verdict]]:
        """Yield every pair with its verdict, in the order of completion."""
        waiting = deque(todo)
        while waiting or any(worker.pair for worker in self._pool):
            busy = sum(worker.pair is not None for worker in self._pool)
            while len(self._pool) < min(self.workers, busy + len(waiting)):
                self._pool.append(_Worker(self._command))
            for worker in self._pool:
                if waiting and worker.ready and worker.pair is None and worker.send(waiting[0], self.timeout_s):
                    waiting.popleft()
            for worker, reply in _replies(self._pool):
                pair, was_ready = worker.pair, worker.ready
                if reply == {"ready": True}:
                    worker.ready, worker.deadline = True, float("inf")
                    self._failed_starts = 0
                    continue
                worker.pair, worker.deadline = None, float("inf")
                if reply["verdict"] not in ("equal", "different"):
                    worker.kill()
                    self._pool.remove(worker)
                    if not was_ready:
                        self._count_failed_start(reply["reason"])
                    elif pair is not None:
                        a, b = (text[:MAX_LOGGED_CHARS] for text in pair)
                        logger.warning("math-verify: %s on %r and %r: %s", reply["verdict"], a, b, reply["reason"])
                if pair is not None:
                    yield pair, reply["verdict"]

    def _count_failed_start(self, reason: str) -> None:
        self._failed_starts += 1
        if self._failed_starts >= MAX_FAILED_STARTS:
            raise RuntimeError(
                f"math-verify workers do not start: {reason}, {self._failed_starts} times in a row. "
                f"Run `{' '.join(self._command)}` to see the error that they print to stderr."
            )


class _Worker:
    """Worker process with the pair that it is comparing."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C must reach the caller alone
            env={**os.environ, "PYTHONHASHSEED": "0"},  # sympy's verdicts may depend on the order of sets
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.ready = False
        self.pair: Pair | None = None
        self.deadline = time.monotonic() + START_TIMEOUT_S
        self._buffer = b""

    def send(self, pair: Pair, timeout_s: float) -> bool:
        """Send a pair; return False if the process has died."""
        try:
            self.stdin.write(json.dumps(pair).encode() + b"\n")
        except BrokenPipeError:
            return False
        self.pair, self.deadline = pair, time.monotonic() + timeout_s
        return True

    def receive(self) -> dict[str, Any] | None:
        """Read available bytes and return the reply, or None if its line is not complete."""
        chunk = self.stdout.read(1 << 16)
        if not chunk:
            return {"verdict": "error", "reason": f"the worker ended with status {self.process.wait()}"}
        self._buffer += chunk
        if not self._buffer.endswith(b"\n"):
            return None
        reply: dict[str, Any] = json.loads(self._buffer)
        self._buffer = b""
        return reply

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.stdin.close()
        self.stdout.close()


def _replies(pool: list[_Worker]) -> list[tuple[_Worker, dict[str, Any]]]:
    """Wait for the next replies; a worker past its deadline gets a timeout reply."""
    replies = []
    with selectors.DefaultSelector() as selector:
        for worker in pool:
            selector.register(worker.stdout, selectors.EVENT_READ, worker)
        first_deadline = min(worker.deadline for worker in pool)
        wait_s = None if first_deadline == float("inf") else max(0.0, first_deadline - time.monotonic())
        for event, _ in selector.select(wait_s):
            if reply := event.data.receive():
                replies.append((event.data, reply))
    now = time.monotonic()
    replied = [worker for worker, _ in replies]
    for worker in pool:
        if worker.deadline < now and worker not in replied:
            limit = "the time limit of a pair" if worker.ready else f"{START_TIMEOUT_S:g} s to start"
            replies.append((worker, {"verdict": "timeout", "reason": f"killed after {limit}"}))
    return replies


def _kill_all(pool: list[_Worker], pid: int) -> None:
    if os.getpid() == pid:
        for worker in pool:
            worker.kill()
        pool.clear()


def _cpu_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
