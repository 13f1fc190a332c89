"""Toy runs of random settings that are killed, stopped or have no space left, and are continued, next to
the same run that nothing stopped: the same bytes at the end.

    python tests/helpers/stormy_runs.py FOLDER RUNS

Each process is a fork of this one, which has imported everything. The number of a run seeds its settings and moments.
"""

import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path

import torch
from foreign_engine import NAME as FOREIGN
from grpo_runs import assert_same_run

from outcome_rl import cli
from outcome_rl.grpo.run.checkpoint import latest_checkpoint

STEPS = 6
FIXED = (
    "data.train_files=toy:train[:32]",
    "data.val_files=toy:validation[:4]",
    "data.test_files=toy:test[:4]",
    "rollout.val_kwargs.n=2",
    f"trainer.total_training_steps={STEPS}",
)


def random_settings(chances: random.Random) -> tuple[str, ...]:
    drawn = [
        f"exploration.bonus={chances.choice(['none', 'ucb', 'ucb_con', 'batch'])}",
        f"exploration.adv_estimator={chances.choice(['grpo', 'maxrl', 'rloo'])}",
        f"data.train_batch_size={chances.choice([4, 8])}",
        f"rollout.n={chances.choice([2, 4])}",
        f"trainer.save_freq={chances.choice([1, 2, 3])}",
        f"trainer.test_freq={chances.choice([-1, 2])}",
        f"trainer.max_ckpt_to_keep={chances.choice([1, 2, 4])}",
        f"trainer.seed={chances.randrange(100)}",
        f"actor.kl_loss_coef={chances.choice([0, 0.001])}",
    ]
    if chances.random() < 0.5:
        drawn += [f"rollout.engine={FOREIGN}", "rollout.importance_cap=2"]
    return tuple(drawn)


def start(run: Path, settings: tuple[str, ...], most_bytes: int = 0) -> int:
    """Fork a process that trains; no file of it grows beyond `most_bytes`."""
    pid = os.fork()
    if pid:
        return pid
    status = 99
    try:
        os.setsid()
        out = os.open(run.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        if most_bytes:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
        place = (f"trainer.default_local_dir={run.parent}", f"trainer.experiment_name={run.name}")
        cli.main(["train", "--config", "toy", *FIXED, *settings, *place])
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the parent reads the status
        traceback.print_exc()
        status = 98
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def ended(pid: int, limit_s: float) -> int | None:
    """Return the exit status of a process, None if it has not ended within the limit."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    return None


def interrupt(run: Path, settings: tuple[str, ...], chances: random.Random, whole_s: float) -> str:
    """Start a process and end it. Return what ended it: "kill", "TERM", "disk", or "" for its own end."""
    kind = chances.choice(["kill", "kill", "TERM", "disk"])
    if kind == "disk":
        status = ended(start(run, settings, int(10 ** chances.uniform(2.5, 6.5))), 600)
        assert status is not None, f"{run.name}: hangs after {kind}"
        assert status != 98, f"{run.name}: traceback after {kind}"
        return kind if status else ""
    pid = start(run, settings)
    status = ended(pid, chances.uniform(0.02, 1) * whole_s)
    if status is None and kind == "kill":
        os.kill(pid, signal.SIGKILL)
    elif status is None:
        for _ in range(chances.randint(1, 4)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            time.sleep(0.05 * chances.random())
    status = ended(pid, 600) if status is None else status
    assert status is not None, f"{run.name}: hangs after {kind}"
    assert status != 98, f"{run.name}: traceback after {kind}"
    return kind if status else ""


def every_file(run: Path) -> dict[str, bytes]:
    """Return the files of the last checkpoint, apart from what names the machine and the time."""
    last = latest_checkpoint(run / "checkpoints")
    paths = [path for path in sorted(last.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(last)): path.read_bytes() for path in paths if path.name not in ("state.json", "MANIFEST")
    }


def main(folder: Path, runs: int) -> None:
    torch.set_num_threads(1)
    ends: Counter[str] = Counter()
    for number in range(runs):
        chances = random.Random(number)
        settings = random_settings(chances)
        whole, run = folder / f"whole-{number}", folder / f"run-{number}"
        for place in (whole, run):
            place.mkdir(parents=True)
        begin = time.monotonic()
        status = ended(start(whole, settings), 900)
        assert status == 0, whole.with_suffix(".out").read_text()[-2000:]
        whole_s = time.monotonic() - begin
        own = Counter(interrupt(run, settings, chances, whole_s) for _ in range(chances.randint(1, 4)))
        del own[""]
        status = ended(start(run, settings), 900)
        assert status == 0, run.with_suffix(".out").read_text()[-2000:]
        assert_same_run(run, whole)
        assert every_file(run) == every_file(whole)
        assert not list(run.rglob(".unfinished*"))
        ends += own
        print(f"run {number}: {dict(own)}, same bytes, {time.monotonic() - begin:.0f} s", flush=True)
        for place in (whole, run):
            shutil.rmtree(place)
    print(f"{runs} runs, {ends.total()} interruptions {dict(ends)}, no difference")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
