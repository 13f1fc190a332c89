"""One process per folder, and signals that wait."""

import errno
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from outcome_rl.grpo.run.run_lock import collect_signals, only_run_in

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def test_a_folder_is_locked_and_released(tmp_path: Path) -> None:
    run_dir = tmp_path / "new" / "run"
    with only_run_in(run_dir):
        assert run_dir.is_dir()
        with (
            pytest.raises(ValueError, match=r"another process works in .*run; wait for it, or choose another"),
            only_run_in(run_dir),
        ):
            raise AssertionError("held twice")
        with only_run_in(tmp_path / "other"):
            pass
    with only_run_in(run_dir):
        pass


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with only_run_in(tmp_path):
        assert "on another file system" in caplog.text


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_is_collected_and_does_not_kill(signum: signal.Signals, caplog: pytest.LogCaptureFixture) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with collect_signals() as received:
        assert received == []
        os.kill(os.getpid(), signum)
        assert received == [signum]
        assert signum.name in caplog.text
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.fixture
def _sigint_is_heard() -> Iterator[None]:
    """Restore the SIGINT handler of a terminal; background jobs of a shell ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_sigint_is_heard")
def test_a_second_ctrl_c_stops_at_once() -> None:
    with collect_signals() as received:
        os.kill(os.getpid(), signal.SIGINT)
        assert received == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_handlers_come_back_after_an_error() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(KeyError), collect_signals():
        raise KeyError
    assert [signal.getsignal(number) for number in SIGNALS] == before
