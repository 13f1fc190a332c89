"""Standard streams that are closed, full or without a reader end no run."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

import pytest

from outcome_rl.terminal.streams import lasting


def without_reader() -> TextIO:
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w")


def full() -> TextIO:
    return os.fdopen(os.open("/dev/full", os.O_WRONLY), "w")


def closed() -> TextIO:
    with open(os.devnull, "w") as stream:
        return stream


@pytest.mark.parametrize("make", [without_reader, full, closed, lambda: None])
def test_a_lasting_stream_never_fails(make) -> None:
    stream = lasting(make())
    for _ in range(3):
        assert stream.write("a line\n" * 5000) == 35_000  # more than a buffer
        stream.flush()
    assert not stream.isatty()


def test_a_lasting_stream_writes_what_it_can(tmp_path: Path) -> None:
    with open(tmp_path / "log", "w") as file:
        stream = lasting(file)
        print("a line", file=stream, flush=True)
    assert (tmp_path / "log").read_text() == "a line\n"


@pytest.mark.parametrize("errors", ["2>/dev/full", "2> >(true)"])
def test_results_come_without_progress(errors: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"question_id": "q", "gold": "1", "response": "1"}\n')
    command = f"sleep 0.1; '{sys.executable}' -m outcome_rl.cli analyze a.jsonl {errors}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert (done.returncode, b"pass@k" in done.stdout) == (0, True)


@pytest.mark.parametrize("streams", [">&- 2>&-", ">/dev/full 2>/dev/full", "| true"])
def test_training_goes_on_without_its_display(streams: str, tmp_path: Path) -> None:
    settings = (
        "trainer.total_training_steps=2 trainer.test_freq=-1 trainer.save_freq=2 data.val_files=[] data.test_files=[]"
    )
    command = f"'{sys.executable}' -m outcome_rl.cli train --config toy {settings} trainer.experiment_name=run"
    with ExitStack() as stack:
        errors = stack.enter_context(open(tmp_path / "errors", "w"))
        status = subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"{command} {streams}"],
            cwd=tmp_path,
            stderr=errors,
            timeout=120,
            check=False,
        ).returncode
    assert (status, (tmp_path / "errors").read_text()) == (0, "")
    assert len((tmp_path / "runs/run/metrics.jsonl").read_text().splitlines()) == 2
    assert (tmp_path / "runs/run/checkpoints/global_step_2").is_dir()
