"""Train a pretrained model of 135M parameters on a CPU: GRPO, UCB-Con and Batch.

Every stage continues where an earlier call stopped, and repeats nothing. Two processes that train share the runs.
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from experiments.smollm2.model import FOLDER, POLICY, SHORT_POLICY, make_model
from experiments.smollm2.record import write_record
from experiments.smollm2.task import Split, problems
from experiments.smollm2.warm_start import warm_start
from outcome_rl.files.jsonl import write_rows
from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.run.run_lock import Interrupted, RunBusyError
from outcome_rl.grpo.trainer import train
from outcome_rl.terminal.arguments import at_least_one
from outcome_rl.terminal.text import errors_on_one_line
from outcome_rl.tools.report import print_summary

CONFIG = Path(__file__).parent / "config.yaml"
RUNS = Path("runs/smollm2")
WARM_STEPS, SHORT_WARM_STEPS = 20, 10
QUESTIONS: dict[Split, int] = {"train": 512, "validation": 64, "test": 128}
METHODS = {
    "none": ["exploration.bonus=none"],
    "ucb_con": ["exploration.bonus=ucb_con"],
    "batch": ["exploration.bonus=batch"],
}
# A run of the machinery in minutes.
SHORT = {
    "model.path": SHORT_POLICY,
    "data.train_files": SHORT_POLICY / "train.jsonl[:8]",
    "data.val_files": SHORT_POLICY / "validation.jsonl[:4]",
    "data.test_files": SHORT_POLICY / "test.jsonl[:4]",
    "data.train_batch_size": 4,
    "rollout.n": 4,
    "rollout.val_kwargs.n": 4,
    "trainer.total_training_steps": 5,
    "trainer.test_freq": 5,
    "trainer.save_freq": 2,
    "trainer.default_local_dir": "runs/smollm2-short",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run a stage, after those that it needs; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.smollm2", description=__doc__)
    parser.add_argument(
        "stage",
        choices=("model", "warm", "train", "record"),
        help="model: download and convert it. warm: teach it the format. train: every method and seed. record: write "
        "their figures to results/.",
    )
    parser.add_argument("--seeds", type=at_least_one, default=3, help="number of seeds (%(default)s)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), help="default: all")
    parser.add_argument("--short", action="store_true", help="five small steps of GRPO: a test of the machinery")
    options = parser.parse_args(argv)
    with errors_on_one_line():
        if options.stage == "record":
            runs = {method: [RUNS / f"{method}-seed{seed}" for seed in range(options.seeds)] for method in METHODS}
            print(f"wrote {write_record(runs)}")
            return 0
        make_model()
        if options.stage != "model":
            make_policy(*(SHORT_POLICY, SHORT_WARM_STEPS) if options.short else (POLICY, WARM_STEPS))
        if options.stage == "train":
            return train_all(["none"] if options.short else options.methods, options.seeds, short=options.short)
    return 0


def make_policy(folder: Path, steps: int) -> None:
    """Warm-start the model, and write the questions next to it, unless `folder` holds them."""
    if (folder / "test.jsonl").exists():
        print(f"{folder} is there")
        return
    warm_start(FOLDER, folder, steps)
    for split, count in QUESTIONS.items():
        write_rows(folder / f"{split}.jsonl", problems(split, count))
    print(f"wrote {folder}")


def train_all(methods: Sequence[str], seeds: int, *, short: bool) -> int:
    """Train each method with each seed, one after the other, seed by seed; return the exit status."""
    for seed, method in product(range(1 if short else seeds), methods):
        settings = [f"trainer.experiment_name={method}-seed{seed}", f"trainer.seed={seed}", *METHODS[method]]
        settings += [f"{name}={value}" for name, value in SHORT.items()] if short else []
        config = load_config(CONFIG, settings)
        try:
            train(config)
            print_summary(config.run_dir)
        except RunBusyError:
            print(f"{method}-seed{seed} is left to the process that trains it")
        except Interrupted as interruption:
            return 128 + interruption.signum
    return 0


if __name__ == "__main__":
    sys.exit(main())
