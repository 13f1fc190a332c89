"""Saves of an explorer, in forks of this process, that fail or are killed at each call of libc on files.

    LD_PRELOAD=faults.so python tests/helpers/libc_faults.py FOLDER

Prints one line, and exits with status 1 if a fault left no state: the old one, the new one, or after a save that ended
the new one, both for `Explorer.load` and for the next save.
"""

import ctypes
import errno
import os
import sys
from itertools import count
from pathlib import Path

from outcome_rl import Explorer
from outcome_rl.exploration.saved import STATE_FILE

ERRORS = [0, *(getattr(errno, name) for name in ("EIO", "ENOSPC", "EINTR", "EACCES", "EMFILE", "ENOENT", "EINVAL"))]
SAVED, REFUSED, UNTOUCHED, OTHER = 0, 1, 2, 3  # exit statuses of a fork; a negative one is its signal
SHIM = ctypes.CDLL(None)


def explorer_after(steps: int) -> Explorer:
    explorer = Explorer(bonus="ucb")
    for step in range(steps):
        explorer.score(["q"] * 2, [rf"\boxed{{{step}}}", r"\boxed{0}"], ["0", "0"])
    return explorer


def save_in_fork(explorer: Explorer, folder: Path, number: int, error: int) -> int:
    """Save with a fault at a call; return the exit status."""
    pid = os.fork()
    if pid == 0:
        status = OTHER
        try:
            SHIM.faults_arm(number, error)
            explorer.save(folder)
            status = SAVED
        except (OSError, ValueError):
            status = REFUSED
        finally:
            os._exit(status if SHIM.faults_fired() else UNTOUCHED)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def total(folder: Path) -> int:
    return int(Explorer.load(folder).counts.total())


def main(place: Path) -> bool:
    old, new, third = explorer_after(1), explorer_after(2), explorer_after(3)
    before, after, last = (int(one.counts.total()) for one in (old, new, third))
    cases, wrong = 0, []
    SHIM.faults_arm(-1, 0)
    for error in ERRORS:
        for number in count():
            folder = place / f"{error}-{number}" / "state"
            old.save(folder)
            status = save_in_fork(new, folder, number, error)
            allowed = [after] if status in (SAVED, UNTOUCHED) else [before, after]
            try:
                is_right = total(folder) in allowed and status != OTHER
                third.save(folder)
                is_right = is_right and total(folder) == last and os.listdir(folder) == [STATE_FILE]
            except (OSError, ValueError):
                is_right = False
            if status == UNTOUCHED:
                break
            cases += 1
            if not is_right:
                wrong.append((errno.errorcode.get(error, "kill"), number, status))
    print(f"{cases} faults, {len(wrong)} without a state {wrong}")
    return cases > 200 and not wrong


if __name__ == "__main__":
    sys.exit(not main(Path(sys.argv[1])))
