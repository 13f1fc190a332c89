"""Process that ends vLLM's processes with the trainer, even if that is killed; otherwise they keep the GPU's memory.

Its standard input is a pipe that only the trainer holds, so the system closes it when the trainer ends. A variable of
their environment marks vLLM's processes from their first moment on.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

MARK = "OUTCOME_RL_ENGINE"  # environment variable of vLLM's processes: the folder of their engine


def start_reaper(folder: str) -> "subprocess.Popen[bytes]":
    """Start the process.

    When its standard input ends, it kills the processes marked with `folder` and deletes the folder.
    """
    # In a separate session, a signal to the trainer's process group does not reach it.
    return subprocess.Popen([sys.executable, "-P", __file__, folder], stdin=subprocess.PIPE, start_new_session=True)


def _marked(folder: str) -> Iterator[Any]:
    import psutil  # a dependency of vLLM

    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == folder:
                yield process
        except psutil.Error:  # ended meanwhile, or another user's
            continue


def _main(folder: str) -> None:
    import psutil

    sys.stdin.buffer.read()
    for _ in range(10):  # again, because a process may have been about to start another
        if not (found := list(_marked(folder))):
            break
        for process in found:
            process.kill()
        psutil.wait_procs(found, timeout=1)
    shutil.rmtree(folder, ignore_errors=True)  # an orderly end has removed it


if __name__ == "__main__":
    _main(sys.argv[1])
