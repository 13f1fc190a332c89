"""A save that fails or is killed at any call of the operating system leaves the old state or the new one."""

import io
import os
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from libc_faults import explorer_after

from outcome_rl import Explorer
from outcome_rl.files import atomic
from outcome_rl.files.atomic import read_unreplaced

CALLS = [
    "open", "fsync", "close", "mkdir", "rename", "replace", "unlink", "rmdir", "scandir", "stat", "lstat", "readlink",
]  # fmt: skip


class Killed(BaseException):
    """Stands for SIGKILL: no later call of the system takes place."""


class Faults:
    """Fails at the n-th call of the system, once, or from then on as after a kill."""

    def __init__(self, number: int, *, kill: bool) -> None:
        self.number, self.kill, self.calls = number, kill, 0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self.kill and self.calls >= self.number:
                raise Killed
            if self.calls == self.number:
                raise OSError(28, "No space left on device")
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


@pytest.mark.parametrize("kill", [False, True], ids=["error", "kill"])
def test_no_fault_leaves_no_state(kill: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without an exchange of names; `test_libc_faults.py` has one with it."""
    monkeypatch.setattr(atomic.ctypes, "CDLL", lambda name: object())
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # slow, and only a power failure needs it
    old, new, third = explorer_after(1), explorer_after(2), explorer_after(3)
    totals = [int(one.counts.total()) for one in (old, new)]
    seen = set()
    for number in count(1):
        folder = tmp_path / str(number) / "state"
        old.save(folder)
        ended = save(new, folder, Faults(number, kill=kill))
        seen.add(int(Explorer.load(folder).counts.total()))
        assert seen <= set(totals), number
        third.save(folder)
        assert int(Explorer.load(folder).counts.total()) == int(third.counts.total())
        assert [path.name for path in folder.parent.iterdir()] == ["state"], number
        if ended:
            break
    assert number > 40
    assert seen == set(totals)


def test_a_file_that_shrinks_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    explorer_after(1).save(tmp_path)
    places = []

    def read(place: Path) -> int:
        places.append(place)
        if len(places) == 1:
            explorer_after(2).save(tmp_path)
            raise RuntimeError("size <656> is smaller than the required mapping size <688>")  # PyTorch's
        return len(places)

    assert read_unreplaced(tmp_path, read) == 2
    with pytest.raises(ZeroDivisionError):
        read_unreplaced(tmp_path, lambda place: 1 // 0)


@pytest.mark.parametrize("exchange", [True, False], ids=["one step", "two renames"])
def test_reads_beside_writers_see_whole_states(exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not exchange:
        monkeypatch.setattr(atomic.ctypes, "CDLL", lambda name: object())
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
        try:
            totals.add(int(Explorer.load(folder).counts.total()))
        except ValueError as error:  # these threads never rest, so a load may be refused, and only for that
            if "replaced again and again" not in str(error):
                raise
    assert errors == []
    assert totals <= {2, 80}
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
