"""Protection of a run: a lock on its folder, and signals that wait for the end of a step or an evaluation."""

import fcntl
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

logger = logging.getLogger(__name__)


class Interrupted(Exception):
    """A signal stopped the run; the same command continues it."""

    def __init__(self, signum: int, when: str) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name} {when}")
        self.signum = signum


class RunBusyError(ValueError):
    """Another process works in the folder of the run."""


@contextmanager
def only_run_in(run_dir: Path) -> Iterator[None]:
    """Lock the folder of a run; the operating system releases the lock when the process ends, even by a kill.

    Raises:
        RunBusyError: another process holds the lock.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / ".lock").open("a") as file:  # a link to a file of the user loses nothing
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunBusyError(
                f"another process works in {run_dir}; wait for it, or choose another trainer.experiment_name or --out"
            ) from error
        yield


@contextmanager
def collect_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying from them, so that the current step ends with a checkpoint."""
    received: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        received.append(signum)
        signal.signal(signal.SIGINT, handlers[signal.SIGINT])  # a second Ctrl-C stops immediately
        logger.warning("%s: stopping with a checkpoint after the current step or data set", signal.Signals(signum).name)

    handlers = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
