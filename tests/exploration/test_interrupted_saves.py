"""A save that fails or is killed at any call of the operating system leaves the old state or the new one."""

import errno
import io
import os
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from outcome_rl import Explorer
from outcome_rl.exploration.saved import STATE_FILE

CALLS = [
    "open", "fsync", "close", "mkdir", "rename", "replace", "unlink", "rmdir", "scandir", "stat", "lstat", "readlink",
]  # fmt: skip


def explorer_after(steps: int) -> Explorer:
    explorer = Explorer(bonus="ucb")
    for step in range(steps):
        explorer.score(["q"] * 2, [rf"\boxed{{{step}}}", r"\boxed{0}"], ["0", "0"])
    return explorer


class Killed(BaseException):
    """Stands for SIGKILL: no later call of the system takes place."""


class Faults:
    """Fails at the n-th call of the system, once with an error, or without one from then on as after a kill."""

    def __init__(self, number: int, error: int) -> None:
        self.number, self.error, self.calls = number, error, 0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if not self.error and self.calls >= self.number:
                raise Killed
            if self.calls == self.number:
                raise OSError(self.error, os.strerror(self.error))
            return call(*arguments, **options)

        return counted


def save(explorer: Explorer, folder: Path, faults: Faults) -> bool:
    """Save with faults; return whether the save ended as if there had been none."""
    with pytest.MonkeyPatch.context() as patched:
        for name in CALLS:
            patched.setattr(os, name, faults.around(getattr(os, name)))
        patched.setattr(io, "open", faults.around(io.open))
        try:
            explorer.save(folder)
        except (OSError, ValueError, Killed):
            return False
    return faults.calls < faults.number


@pytest.mark.parametrize("error", [0, errno.ENOSPC, errno.EIO, errno.EINVAL, errno.ENOENT, errno.EMFILE])
def test_no_fault_leaves_no_state(error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # slow, and only a power failure needs it
    old, new, third = explorer_after(1), explorer_after(2), explorer_after(3)
    totals = [int(one.counts.total()) for one in (old, new)]
    seen = set()
    for number in count(1):
        folder = tmp_path / str(number) / "state"
        old.save(folder)
        ended = save(new, folder, Faults(number, error))
        seen.add(int(Explorer.load(folder).counts.total()))
        assert seen <= set(totals), number
        third.save(folder)
        assert int(Explorer.load(folder).counts.total()) == int(third.counts.total())
        assert [path.name for path in folder.iterdir()] == [STATE_FILE], number
        if ended:
            break
    assert number > 15
    assert seen == set(totals)


def test_reads_beside_writers_see_whole_states(tmp_path: Path) -> None:
    folder, states = tmp_path / "state", [explorer_after(steps) for steps in (1, 40)]  # of different sizes
    states[0].save(folder)
    errors: list[BaseException] = []

    def write(explorer: Explorer) -> None:
        try:
            for _ in range(15):
                explorer.save(folder)
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            errors.append(error)

    writers = [threading.Thread(target=write, args=[explorer]) for explorer in states]
    for writer in writers:
        writer.start()
    totals = set()
    while any(writer.is_alive() for writer in writers):
        totals.add(int(Explorer.load(folder).counts.total()))
    assert errors == []
    assert totals <= {2, 80}
    assert [path.name for path in folder.iterdir()] == [STATE_FILE]
