"""What exists before training: questions of each split, base policies, and samples of those policies alone."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.paper.plan import POLICIES, SHIPPED, Cell, Plan
from outcome_rl.files import atomic_file, read_rows, write_rows
from outcome_rl.grpo.config.schema import ModelConfig, SamplingConfig
from outcome_rl.grpo.data.problems import Problem, derive_seed
from outcome_rl.grpo.rollout.transformers_engine import TransformersEngine
from outcome_rl.outcomes.matcher import OutcomeMatcher
from outcome_rl.terminal import only_our_progress
from outcome_rl.toy import DialectTask
from outcome_rl.toy.task import MEDIUM, Split

RESPONSE_TOKENS = 16  # as the toy preset has it
MICRO_BATCH = 512


class Samples(NamedTuple):
    """Outcomes of Q questions with k samples each, in the order in which they were drawn."""

    keys: NDArray[np.int64]  # (Q, k)
    correct: NDArray[np.bool_]  # (Q, k)


class Base:
    """Base policies, data and base samples of a plan, each made once and kept in `folder`."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder

    def prepare(self, cell: Cell) -> None:
        """Make what the runs of a cell start from; it may be called in a process of its own."""
        only_our_progress()
        torch.set_num_threads(1)  # models this small run slower on two, and much slower where the second core is busy
        for seed in self.plan.seeds:
            self.samples(cell, seed)

    def is_prepared(self, cell: Cell) -> bool:
        return all(self._samples_file(cell, seed).exists() for seed in self.plan.seeds)

    def policy(self, instance: int, name: str) -> str:
        """`model.path` of a base policy, which is made if it is not there."""
        if (instance, name) == SHIPPED:
            return "toy"
        place = self.folder / "policies" / f"{instance}-{name}"
        if not (place / "policy_card.json").exists():  # the last file that is written
            options = {"--out": place, "--steps": POLICIES[name], "--instance": instance, "--questions": 64}
            command = [sys.executable, "-m", "experiments.toy.make_policy", *map(str, _flat(options))]
            print(f"makes the {name} base policy of instance {instance}: {POLICIES[name]} steps", flush=True)
            # Its two threads wait for each other: busily, that takes ten times as long where others use a core.
            environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        return str(place)

    def problems(self, instance: int, split: Split, count: int) -> Path:
        """The file of a validation or test set."""
        path = self.folder / "data" / str(instance) / f"{split}.jsonl"
        return _written(path, DialectTask(instance).problems(split, count))

    def training_file(self, cell: Cell) -> Path:
        """The file of a training split.

        Raises:
            ValueError: the base policy fails fewer questions than a batch holds.
        """
        name = f"{cell.policy}-hard.jsonl" if cell.split == "hard" else f"{cell.split}.jsonl"
        path = self.folder / "data" / str(cell.instance) / name
        if path.exists():
            return path
        task = DialectTask(cell.instance)
        wanted = self.plan.train_questions
        if cell.split == "medium":
            return _written(path, task.problems("train", wanted))
        if cell.split == "easy":
            rows = [row for row in task.problems("train", 8 * wanted) if not _needs_a_hard_rule(task, row["problem"])]
            return _written(path, rows[:wanted])
        rows = self._failed(cell)
        kept = min(len(rows), self.plan.hard_questions) // self.plan.batch * self.plan.batch
        if kept == 0:
            raise ValueError(
                f"the {cell.policy} policy of instance {cell.instance} fails only {len(rows)} of "
                f"{self.plan.hard_pool} questions {self.plan.hard_samples} times, which is less than a batch of "
                f"{self.plan.batch}; raise hard_pool of the plan"
            )
        return _written(path, rows[:kept])

    def samples(self, cell: Cell, seed: int) -> Samples:
        """As many samples of the base policy for each training question as a run draws in all its steps.

        They are fresh: those that chose the hard questions cannot tell how often the policy fails them.
        """
        path = self._samples_file(cell, seed)
        rows = list(read_rows(self.training_file(cell)))
        count = self.plan.steps * self.plan.batch * self.plan.n // len(rows)
        if not path.exists():
            print(f"samples the base policy: {cell.name}, {len(rows)} questions x {count}", flush=True)
            with _Sampler(self.policy(cell.instance, cell.policy)) as sampler:
                samples = sampler.sample(rows, count, derive_seed(seed, "base", cell.name))
            with atomic_file(path) as scratch:
                np.savez_compressed(scratch, keys=samples.keys, correct=samples.correct)
        with np.load(path) as stored:
            return Samples(stored["keys"], stored["correct"])

    def _samples_file(self, cell: Cell, seed: int) -> Path:
        return self.folder / "base" / f"{cell.name}-seed{seed}.npz"

    def _failed(self, cell: Cell) -> list[dict[str, str]]:
        """The questions of the pool that the base policy fails in every sample.

        The number of samples doubles round by round, for the questions that are still unsolved: the others are decided.
        """
        rows = DialectTask(cell.instance).problems("train", self.plan.hard_pool)
        with _Sampler(self.policy(cell.instance, cell.policy)) as sampler:
            for number, count in enumerate(_doubling(self.plan.hard_samples)):
                if not rows:
                    break
                samples = sampler.sample(rows, count, derive_seed(0, "hard", number))
                rows = [row for row, verdicts in zip(rows, samples.correct.tolist(), strict=True) if not any(verdicts)]
                print(f"hard questions of {cell.name}: {len(rows)} unsolved after {count} more samples", flush=True)
        return rows


class _Sampler:
    """A base policy and a matcher; a context manager, since the matcher may have processes."""

    def __init__(self, model_path: str) -> None:
        self.model_path = model_path

    def __enter__(self) -> "_Sampler":
        self.matcher = OutcomeMatcher().__enter__()
        return self

    def __exit__(self, *reason: object) -> None:
        self.matcher.close()

    @cached_property
    def engine(self) -> TransformersEngine:
        from outcome_rl.grpo.model.policy import Policy

        return TransformersEngine(Policy.load(ModelConfig(path=self.model_path)), MICRO_BATCH)

    def sample(self, rows: Sequence[dict[str, str]], count: int, seed: int) -> Samples:
        prompts = self.engine.policy.tokenizer([row["problem"] for row in rows])["input_ids"]
        rollouts = self.engine.generate(prompts, SamplingConfig(n=count), RESPONSE_TOKENS, seed)
        outcomes = self.matcher.classify(
            [row["id"] for row in rows for _ in range(count)],
            rollouts.texts,
            [row["answer"] for row in rows for _ in range(count)],
        )
        return Samples(outcomes.keys.reshape(-1, count), outcomes.correct.reshape(-1, count))


def read_problems(path: Path) -> list[Problem]:
    return [Problem(row["id"], row["problem"], row["answer"]) for row in read_rows(path)]


def _needs_a_hard_rule(task: DialectTask, text: str) -> bool:
    dialect, _, symbol1, _, symbol2, *_ = text.split()
    rules = [task.rules[dialect, symbol] for symbol in (symbol1, symbol2)]
    return any(rule.beliefs[rule.operation] < MEDIUM.p_true for rule in rules)


def _doubling(total: int) -> Iterator[int]:
    """Numbers that add up to `total`, each the sum of those before it."""
    done = min(8, total)
    yield done
    while done < total:
        more = min(done, total - done)
        yield more
        done += more


def _written(path: Path, rows: Sequence[dict[str, str]]) -> Path:
    if not path.exists():
        write_rows(path, rows)
    return path


def _flat(options: dict[str, object]) -> Iterator[object]:
    for name, value in options.items():
        yield from (name, value)
