"""A child that is forked while another thread holds a lock does not wait for that thread."""

import os
import threading
from typing import Any

import pytest

from outcome_rl.isolation.fork_locks import lock_of


class Owner:
    def __init__(self, make: Any) -> None:
        self._lock = lock_of(self, make)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
def test_a_child_has_its_own_lock(make: Any) -> None:
    owner, held, done = Owner(make), threading.Event(), threading.Event()

    def hold() -> None:
        with owner._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if owner._lock.acquire(timeout=5) else 1)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
