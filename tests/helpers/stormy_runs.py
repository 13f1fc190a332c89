"""Toy runs of random settings that are killed, stopped, have no space left, lose the reader of their output or rows of
their logs, and are continued, next to the same run that nothing stopped: the same bytes at the end, or one line that
says which rows are lost.

    python tests/helpers/stormy_runs.py FOLDER RUNS

Each process is a fork of this one, which has imported everything. The number of a run seeds its settings and moments.
"""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path

import torch
from foreign_engine import NAME as FOREIGN
from grpo_runs import STREAMS, assert_same_run

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


def start(run: Path, settings: tuple[str, ...], most_bytes: int = 0, lines: int | None = None) -> int:
    """Fork a process that trains; no file of it grows beyond `most_bytes`, and nobody reads more than some lines."""
    pid = os.fork()
    if pid:
        return pid
    status = 99
    try:
        os.setsid()
        out = os.open(run.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        if lines is not None:
            reader = subprocess.Popen(["head", "-n", str(lines)], stdin=subprocess.PIPE)
            os.dup2(reader.stdin.fileno(), 1)
            reader.stdin.close()
        sys.stdout = os.fdopen(1, "w", closefd=False)  # the first one may be of another kind
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
    lines = chances.choice([None, 0, 1, 2, 5])
    if kind == "disk":
        pid, wait_s = start(run, settings, int(10 ** chances.uniform(2.5, 6.5)), lines), 600.0
    else:
        pid, wait_s = start(run, settings, lines=lines), chances.uniform(0.02, 1) * whole_s
    status = ended(pid, wait_s)
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
    if status == 128 + signal.SIGPIPE:  # nobody reads the summary of a run that is at its end
        return f"head -n {lines}"
    assert kind == "disk" or status <= 0 or status == 128 + signal.SIGTERM, f"{run.name}: {status} after {kind}"
    return kind if status else ""


def damage(run: Path, chances: random.Random) -> str:
    """Cut a log anywhere; double, swap or remove rows that the checkpoint counts. Return the change."""
    logs = [path for stream in STREAMS if (path := run / f"{stream}.jsonl").exists() and path.stat().st_size]
    if not logs:
        return ""
    path = chances.choice(logs)
    rows = path.read_bytes().splitlines(keepends=True)
    last = latest_checkpoint(run / "checkpoints")
    counted = json.loads((last / "state.json").read_text())["log"][path.stem]["rows"] if last else 0
    kind = chances.choice(["cut", "double", "swap", "remove"]) if counted else "cut"
    if kind == "cut":
        os.truncate(path, chances.randrange(path.stat().st_size))
        return kind
    at, other = chances.randrange(counted), chances.randrange(counted)
    changed = {"double": [*rows[: at + 1], *rows[at:]], "remove": [*rows[:at], *rows[at + 1 :]]}.get(kind, [*rows])
    if kind == "swap":
        changed[at], changed[other] = changed[other], changed[at]
    path.write_bytes(b"".join(changed))
    return kind


def lose_rows(run: Path, settings: tuple[str, ...], chances: random.Random) -> list[str]:
    """Damage a log and continue: to the end, or to one line that names the log, which is put back. Return both."""
    before = {path: path.read_bytes() for path in run.glob("*.jsonl")}
    kind = damage(run, chances)
    if not kind:
        return []
    damaged = {path: path.read_bytes() for path in before}
    out = run.with_suffix(".out")
    shown = out.stat().st_size if out.exists() else 0
    status = ended(start(run, settings), 900)
    if status == 0:
        return [kind, "log mended"]
    said = [line for line in out.read_bytes()[shown:].decode().splitlines() if line.startswith("error: ")]
    assert status == 2, f"{run.name}: {status} after {kind}"
    assert len(said) == 1, f"{run.name}: {said} after {kind}"
    assert any(str(path) in said[0] for path in before), f"{run.name}: {said} after {kind}"
    assert damaged == {path: path.read_bytes() for path in before}, f"{run.name}: a refused log was changed"
    for path, content in before.items():
        path.write_bytes(content)
    return [kind, "log refused"]


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
        own: Counter[str] = Counter()
        for _ in range(chances.randint(1, 4)):
            own[interrupt(run, settings, chances, whole_s)] += 1
            if chances.random() < 0.5:
                own.update(lose_rows(run, settings, chances))
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
