"""Whole runs of the toy policy with vLLM, and every way to stop one."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from grpo_runs import Process, assert_same_run, rows
from stopped_program import Stop
from vllm_samples import VLLM_SETTINGS

from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.rollout.handover import SHARED_MEMORY
from outcome_rl.grpo.rollout.vllm_reaper import MARK
from outcome_rl.grpo.run.checkpoint import latest_checkpoint
from outcome_rl.grpo.trainer import train

SETTINGS = (*VLLM_SETTINGS, "trainer.save_freq=100", "trainer.experiment_name=run")


def settings(folder: Path) -> list[str]:
    return [*SETTINGS, f"trainer.default_local_dir={folder}"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of eight steps that nothing stopped."""
    config = load_config("toy", settings(tmp_path_factory.mktemp("whole")))
    before = engine_processes(os.getsid(0))
    train(config)
    assert_ended(engine_processes(os.getsid(0)) - before)
    return config.run_dir


def engine_processes(session: int) -> set[psutil.Process]:
    """Find vLLM's living processes of a session; they outlive the trainer for a moment."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):  # of one that has ended
            if os.getsid(process.pid) == session and MARK in process.environ():
                found.add(process)
    return found


def assert_ended(processes: set[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert not alive


def test_after_every_update_the_engine_samples_from_the_policy(whole: Path) -> None:
    metrics = rows(whole, "metrics")
    assert len(metrics) == 8
    for row in metrics:
        assert row["actor/grad_norm"] > 0
        assert 0 < row["rollout/logp_diff_mean"] <= row["rollout/logp_diff_max"] < 1e-4
        assert row["rollout/importance_mean"] == pytest.approx(1, abs=1e-4)
        assert row["rollout/importance_clipped"] == 0
    assert metrics[-1]["actor/kl"] > 1e-3  # far from the initial weights in those terms
    assert [(row["step"], row["dataset"]) for row in rows(whole, "evaluations")] == [
        (0, "toy:validation"),
        (0, "toy:test"),
        (3, "toy:validation"),
        (6, "toy:validation"),
        (8, "toy:validation"),
        (8, "toy:test"),
    ]


def test_a_run_stopped_in_three_ways_equals_an_uninterrupted_one(whole: Path, tmp_path: Path) -> None:
    """The engine dies in a rollout, Ctrl-C on all processes, SIGKILL of the trainer alone; then to the end."""
    left = set(SHARED_MEMORY.glob("outcome-rl-weights-*"))
    run_dir = tmp_path / "run"
    overrides = settings(tmp_path)

    status, _, err = Process(overrides, stop=Stop(signal.SIGKILL, 2, "engine")).finish()
    assert status == 2, err
    assert "error: vLLM's engine process ended while it sampled" in err
    assert len(rows(run_dir, "metrics")) == 2
    assert_saved(run_dir, 2)  # at the step before, though no checkpoint was due

    status, out, err = Process(overrides, stop=Stop(signal.SIGINT, 4)).finish()
    assert status == 128 + signal.SIGINT, err
    assert "continues after step 2" in out
    assert "stopped by SIGINT after step 4" in err
    assert_saved(run_dir, 4)

    killed = Process(overrides, stop=Stop(signal.SIGKILL, 5, "process"))
    assert killed.finish()[0] == -signal.SIGKILL
    assert_ended(engine_processes(killed.process.pid))

    status, out, err = Process(overrides).finish()
    assert status == 0, err
    assert "continues after step 4" in out
    assert_same_run(run_dir, whole)
    assert set(SHARED_MEMORY.glob("outcome-rl-weights-*")) <= left


def assert_saved(run_dir: Path, step: int) -> None:
    newest = latest_checkpoint(run_dir / "checkpoints")
    assert newest.name == f"global_step_{step}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_start_that_is_stopped_leaves_no_engine(tmp_path: Path, number: signal.Signals) -> None:
    starting = Process(settings(tmp_path))
    deadline = time.monotonic() + 120
    while not (engine := engine_processes(starting.process.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    starting.process.send_signal(number)
    assert_ended(engine)
    assert starting.finish()[0] == -number
