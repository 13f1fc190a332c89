"""GRPO beside PKPO on a pretrained model: a quarter of an hour on two cores.

python -m experiments.smollm2.demo

Both train from one warm start on the same sums, each on one core, and then answer the same 128 test questions 32 times.
The comparison is by question: its intervals hold for these two policies. What other seeds give is a matter of several
trainings, as in `hard` and `countdown`. Ctrl-C ends both with a checkpoint; the same command continues.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from experiments.smollm2.__main__ import CONFIG, WARM_STEPS, make_policy
from experiments.smollm2.model import POLICY, make_model
from outcome_rl.terminal.text import errors_on_one_line

RUNS = Path("runs/smollm2-demo")
METHODS = {"grpo": "grpo", "pkpo": "pkpo(k=4)"}
STEPS = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Train both methods at once, sample both policies, compare them; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.smollm2.demo", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of each training (%(default)s)")
    options = parser.parse_args(argv)
    with errors_on_one_line():
        make_model()
        make_policy(POLICY, WARM_STEPS)
        RUNS.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor() as pool:
            statuses = list(pool.map(lambda method: train_and_sample(method, options.steps), METHODS))
    if any(statuses):
        return max(statuses)
    samples = [str(RUNS / f"{method}-samples" / "test.jsonl") for method in METHODS]
    return outcome_rl(["analyze", *samples, "--plot", str(RUNS / "demo.png")])


def train_and_sample(method: str, steps: int) -> int:
    """Run one method; the first shows its progress, the others write theirs to a file."""
    settings = [
        "exploration.bonus=none",
        f"exploration.adv_estimator={METHODS[method]}",
        f"trainer.total_training_steps={steps}",
        f"trainer.default_local_dir={RUNS}",
        f"trainer.experiment_name={method}",
    ]
    log = None if method == next(iter(METHODS)) else RUNS / f"{method}.log"
    if log is not None:
        print(f"{method} trains beside it and writes to {log}")
    trained = outcome_rl(["train", "--config", str(CONFIG), *settings], log)
    test = str(POLICY / "test.jsonl")  # all of it
    return trained or outcome_rl(
        ["eval", str(RUNS / method), "--data", test, "--out", str(RUNS / f"{method}-samples")], log
    )


def outcome_rl(arguments: Sequence[str], log: Path | None = None) -> int:
    """Run a command of `outcome-rl` with one thread; return its exit status."""
    command = [sys.executable, "-m", "outcome_rl.cli", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if log is None:
        return subprocess.run(command, env=environment, check=False).returncode
    with log.open("a") as file:
        status = subprocess.run(command, env=environment, stdout=file, stderr=file, check=False).returncode
    if status:
        print(f"outcome-rl {arguments[0]} ended with status {status}; see {log}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
