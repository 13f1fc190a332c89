"""Standard streams that are closed, full, or without a reader."""

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast


def open_closed_streams() -> None:
    """Connect each closed standard stream to the null device, so that no file of ours takes its descriptor."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            _to_nowhere(descriptor)
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def lasting(stream: TextIO | None) -> TextIO:
    """Return a stream that never fails: from its first failure on, its descriptor is the null device.

    A pager that ends, or a full disk behind `> log`, is then no reason to stop what is displayed.

    Args:
        stream: a standard stream; None is a closed one.
    """
    return cast(TextIO, _Lasting(stream or _nowhere()))


class _Lasting:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._lasting(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._lasting(lambda: self._stream.flush())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _lasting(self, work: Callable[[], Any]) -> None:
        try:
            work()
        except OSError:
            _to_nowhere(self._stream.fileno())  # with what the stream still holds
            work()
        except ValueError:  # the stream was closed
            self._stream = _nowhere()


@contextmanager
def quiet_without_reader() -> Iterator[None]:
    """End quietly, with the status of SIGPIPE, once nobody reads stdout, as in `outcome-rl env | head -1`."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # at exit Python would print the failure
    except BrokenPipeError:
        if not _is_unread(sys.stdout.fileno()):
            raise
        _to_nowhere(sys.stdout.fileno())
        raise SystemExit(128 + signal.SIGPIPE) from None


def _nowhere() -> TextIO:
    return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _to_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def _is_unread(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)  # POLLERR and POLLHUP are always reported
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
