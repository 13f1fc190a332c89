"""An outcome function that does to its process whatever its data row lists, and then returns the response."""

import builtins
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from outcome_rl import isolated

FORGED = b'{"verdict": "value", "found": ["\\"forged\\"", 0, 0], "id": 1}\n'


class Returned(Exception):
    """The function returns early, in this process or a forked one."""


def fork(then: Callable[[], Any], *, late: bool = False) -> None:
    if os.fork() == 0:
        if late:
            time.sleep(0.1)
        then()


def fail() -> None:
    raise FileNotFoundError("the program does not start")


def come_back() -> None:
    raise Returned


def write_everywhere() -> None:
    for fd in range(64):
        with suppress(OSError):
            os.write(fd, FORGED)


def later(action: Callable[[], Any]) -> None:
    threading.Timer(0.05, action).start()


def forge(*arguments: Any, **options: Any) -> str:
    return FORGED.decode()


def patch(module: Any, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(module, name, value)


def reply_ready() -> None:
    for fd in range(3, 64):
        with suppress(OSError):
            os.write(fd, b'{"ready": true}\n')
    os._exit(0)


DEEDS: dict[str, Callable[[], Any]] = {
    "fork and raise": lambda: fork(fail),
    "fork and raise late": lambda: fork(fail, late=True),
    "fork and exit": lambda: fork(lambda: sys.exit(3)),
    "fork and return": lambda: fork(come_back),
    "fork and return late": lambda: fork(come_back, late=True),
    "patch dumps": patch(json, "dumps", forge),
    "patch loads": patch(json, "loads", lambda text: {"verdict": "value"}),
    "patch write": patch(os, "write", lambda fd, content: len(content)),
    "patch len": patch(builtins, "len", None),
    "patch getpid": patch(os, "getpid", lambda: 1),
    "close all": lambda: os.closerange(0, 64),
    "write everywhere": write_everywhere,
    "write everywhere later": lambda: later(write_everywhere),
    "a thread that stays": lambda: threading.Thread(target=time.sleep, args=[60]).start(),
    "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "die later": lambda: later(lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "kill the group": lambda: os.killpg(0, signal.SIGTERM),
    "end the worker": lambda: os.kill(os.getppid(), signal.SIGTERM),
    "reply ready": reply_ready,
    "forget modules": sys.modules.clear,
    "no memory": lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20)),
    "an alarm": lambda: signal.setitimer(signal.ITIMER_REAL, 0.02),
    "no recursion": lambda: sys.setrecursionlimit(60),
    "raise": fail,
    "interrupt": lambda: signal.raise_signal(signal.SIGINT),
}


def misbehave(response: str, example: Mapping[str, Any]) -> str:
    """Do the deeds of the row, then return the response."""
    with suppress(Returned):
        for deed in example["deeds"]:
            DEEDS[deed]()
    return response


misbehave_isolated = isolated(misbehave, timeout_s=3, memory_mb=512, workers=1)
