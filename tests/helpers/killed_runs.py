"""Runs of TRL's trainer that are killed and continued, next to one that nothing stopped: the same bytes at the end, and
the same samples at every step.

    python tests/helpers/killed_runs.py FOLDER RUNS

The moments are seeded by the number of the run: the trainer kills itself at an event of its files, most of them in
checkpoints.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

TRL_STEPS = 12  # of an epoch of 16: at its end TRL does not repeat itself
TRL_EVENTS = 180  # of the files of a whole run


def train_with_trl(folder: Path, fatal: int = sys.maxsize) -> None:
    """Train with `OutcomeGRPOTrainer` to the end, from the newest checkpoint if there is one, as a script does that is
    started again and again. Ends by SIGKILL at the event number `fatal` of the files in the folder."""
    import torch
    from datasets import Dataset
    from trl_runs import is_right, make_trainer

    from outcome_rl.files.jsonl import append_rows
    from outcome_rl.toy import DialectTask, policy_dir

    torch.set_num_threads(1)
    path = folder / "metrics.jsonl"
    append_rows(path).close()

    def recorded(completions: list[str], answer: list[str], trainer_state: Any, **_: Any) -> list[float]:
        rewards = is_right(completions, answer)
        row = {"step": trainer_state.global_step, "completions": completions, "rewards": rewards}
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        return rewards

    problems = DialectTask().problems("train")[:32]
    rows = [{"id": row["id"], "prompt": row["problem"], "answer": row["answer"]} for row in problems]
    trainer = make_trainer(
        policy_dir(),
        folder,
        data=Dataset.from_list(rows),
        reward_funcs=recorded,
        rollout_func=None,
        per_device_train_batch_size=8,
        max_steps=TRL_STEPS,
        learning_rate=2e-4,
        save_strategy="steps",
        save_steps=2,
    )
    seen = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir") and str(folder) in str(arguments[0]):
            seen += 1
            if seen > fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    trainer.train(resume_from_checkpoint=bool(list(folder.glob("checkpoint-*/trainer_state.json"))))


def kill_trl(folder: Path, kills: int, seed: int) -> int:
    """Train with TRL in forks of this process, so many of which kill themselves. Return how many did before one came to
    the end."""
    chances = random.Random(seed)
    for done in range(kills + 1):
        fatal = chances.randrange(TRL_EVENTS) if done < kills else sys.maxsize
        pid = os.fork()
        if pid == 0:
            try:
                train_with_trl(folder, fatal)
                os._exit(0)
            finally:
                traceback.print_exc()
                os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status == 0:
            return done
        assert status == -signal.SIGKILL, f"exit status {status}"
    raise AssertionError("the last process was killed")


def assert_same_trl_run(folder: Path, whole: Path) -> None:
    """Compare every file of the last checkpoint, the logs but for their times, and the samples of every step, those
    that were sampled again included."""
    wanted = {row["step"]: row for row in map(json.loads, (whole / "metrics.jsonl").read_text().splitlines())}
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {row["step"] for row in found} == {*wanted}
    for row in found:
        assert row == wanted[row["step"]], f"step {row['step']}"
    last = f"checkpoint-{TRL_STEPS}"
    left, right = (
        {str(path.relative_to(place / last)): path.read_bytes() for path in (place / last).rglob("*") if path.is_file()}
        for place in (folder, whole)
    )
    histories = [json.loads(files.pop("trainer_state.json"))["log_history"] for files in (left, right)]
    for history in histories:
        for row in history:
            for name in [name for name in row if "time" in name or "second" in name]:
                del row[name]
    assert histories[0] == histories[1]
    for files in (left, right):
        del files["training_args.bin"]  # it names the folder
    assert left.keys() == right.keys()
    assert [name for name in left if left[name] != right[name]] == []


def main(folder: Path, runs: int) -> None:
    whole = folder / "whole"
    whole.mkdir(parents=True)
    kill_trl(whole, 0, 0)
    total = 0
    for number in range(runs):
        run = folder / f"run-{number}"
        run.mkdir()
        begin = time.monotonic()
        kills = kill_trl(run, 1 + number % 3, number)
        assert_same_trl_run(run, whole)
        total += kills
        print(f"run {number}: {kills} kills, same bytes, {time.monotonic() - begin:.0f} s", flush=True)
    print(f"{runs} runs, {total} kills, no difference")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
