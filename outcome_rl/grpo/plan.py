"""The plan of a run: everything that is decided without weights.

settings -> model's shape and tokenizer -> problems, prompts, order, length -> checkpoint -> identity
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from outcome_rl.causal_lm import check_token_ids
from outcome_rl.environment import package_versions
from outcome_rl.exploration.explorer import Explorer
from outcome_rl.exploration.older import reads
from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.data.problems import BatchOrder, load_problems
from outcome_rl.grpo.data.prompts import tokenize
from outcome_rl.grpo.data.reward import RewardFunction
from outcome_rl.grpo.model.dtype import with_dtype
from outcome_rl.grpo.model.source import check_context, load_shape, load_tokenizer
from outcome_rl.grpo.rollout.engine import RolloutEngine, check_engine
from outcome_rl.grpo.run.checkpoint import CHECKPOINTS, check_same_run, latest_checkpoint, read_state
from outcome_rl.grpo.run.evaluation import EvaluationPlan
from outcome_rl.grpo.run.open_explorer import check_counts, open_explorer
from outcome_rl.grpo.run.tracking import check_loggers
from outcome_rl.grpo.types import ProblemSet
from outcome_rl.outcomes.kinds import OutcomeKind
from outcome_rl.user_functions import sources
from outcome_rl_kernels.settings import settings_of


@dataclass(frozen=True)
class Plan:
    """A run that could start here; `open_parts` starts it.

    Attributes:
        config: all settings, with the data type that the run has.
        checkpoint: the newest one of the run, which it continues.
        saved: the checkpoint's state; empty for a run that begins.
        identity: what a checkpoint and the run that continues it must share.
        explorer: of a run that begins with the counts of another one.
    """

    config: TrainConfig
    engine: type[RolloutEngine]
    reward: RewardFunction | None
    tokenizer: Any
    train_set: ProblemSet
    order: BatchOrder
    total_steps: int
    evaluations: EvaluationPlan
    checkpoint: Path | None
    saved: Mapping[str, Any]
    identity: dict[str, Any]
    explorer: Explorer | None

    @property
    def facts(self) -> dict[str, Any]:
        """Everything that all processes of a run must have in common."""
        settings = {one.name: one.value for one in settings_of(self.config) if one.name != "model.device"}
        own = {
            "checkpoint": None if self.checkpoint is None else self.checkpoint.name,
            "prompts": digest(self.evaluations.prompts(self.train_set)),
            "columns of the data": digest([problem.example for problem in self.train_set.problems]),
            "tokenizer": digest(sorted(self.tokenizer.get_vocab().items())),
        }
        same = {name: version for name, version in versions().items() if name != "threads"}
        code = {f"code of {name}": source for name, source in sources().items()}
        return settings | self.identity | own | same | code

    def close(self) -> None:
        """End the worker processes of the reward function and of the explorer."""
        for part in (self.reward, self.explorer):
            if part is not None:
                part.close()


def plan(config: TrainConfig, announce: Callable[[str], None] = lambda phase: None) -> Plan:
    """Check settings, packages, model and data, and find the checkpoint that the run continues.

    Args:
        config: all settings.
        announce: called with a description of each phase that may take long.

    Raises:
        FileNotFoundError, ValueError: bad data, model or settings, or a checkpoint of another run.
    """
    data, trainer = config.data, config.trainer
    device = distributed.own_device(config.model.device)
    distributed.check_batch(data.train_batch_size)
    engine = check_engine(config.rollout)
    check_loggers(trainer.logger)
    checkpoint = latest_checkpoint(config.run_dir / CHECKPOINTS)
    saved = {} if checkpoint is None else read_state(checkpoint, "" if distributed.is_rank_zero() else "state.json")
    config = replace(config, model=with_dtype(config.model, saved.get("identity", {}).get("model.dtype")))
    tokenizer, shape = load_tokenizer(config.model), load_shape(config.model)

    def read_set(sources: Sequence[str], *, training: bool) -> ProblemSet:
        problems = load_problems(sources, data, training=training, needs_answers=config.needs_answers)
        return tokenize(problems, tokenizer, data)

    announce(f"reading {', '.join(data.train_files)}")
    train_set = read_set(data.train_files, training=True)
    order = BatchOrder(len(train_set.problems), data.train_batch_size, trainer.seed)
    total_steps = config.total_steps(order.steps_per_epoch)
    evaluations = EvaluationPlan(partial(read_set, training=False), data, trainer.test_freq)
    prompts = evaluations.prompts(train_set)
    check_token_ids(tokenizer, prompts, shape.get_text_config().vocab_size)
    check_context(shape, max(map(len, prompts)), data.max_response_length)

    with config.exploration.matcher() as kind:
        identity = config.identity | _contents(train_set, evaluations) | {"outcome rule": outcome_rule(kind, saved)}
    explorer = None
    if checkpoint is None and (folder := trainer.initial_exploration):
        explorer = open_explorer(config.exploration, device, folder, train_set)
        check_counts(explorer, folder, train_set)
    if checkpoint is not None:
        check_same_run(saved["identity"], identity, checkpoint)
        _check_length(saved["run"]["step"], total_steps, checkpoint)
    return Plan(
        config=config,
        engine=engine,
        reward=RewardFunction(config.reward) if config.reward.function else None,
        tokenizer=tokenizer,
        train_set=train_set,
        order=order,
        total_steps=total_steps,
        evaluations=evaluations,
        checkpoint=checkpoint,
        saved=saved,
        identity=identity,
        explorer=explorer,
    )


def _check_length(done: int, total_steps: int, checkpoint: Path) -> None:
    """Refuse to continue a run that has done more steps than it is to have.

    Raises:
        ValueError: it has.
    """
    if done > total_steps:
        raise ValueError(
            f"trainer.total_training_steps gives {total_steps} steps, and {checkpoint} has done {done}: a run may be "
            "made longer, not shorter. Raise it, or start a new run under another trainer.experiment_name"
        )


def outcome_rule(kind: OutcomeKind, saved: Mapping[str, Any]) -> str:
    """Return the outcome rule of a run: that of its checkpoint, if the outcomes can be read again under this one."""
    before = saved.get("identity", {}).get("outcome rule", "")
    return before if reads(kind, before) else kind.rule


def _contents(train_set: ProblemSet, evaluations: EvaluationPlan) -> dict[str, str]:
    data = {"training data": [train_set], "validation data": evaluations.validation, "test data": evaluations.test}
    return {
        name: ", ".join(f"{len(one.problems)} problems with SHA-256 {one.fingerprint[:16]}" for one in sets)
        for name, sets in data.items()
    }


def digest(value: Any) -> str:
    """Return a short digest of values of JSON, and of others by their text."""
    return hashlib.sha256(json.dumps(value, default=repr).encode()).hexdigest()[:16]


def versions() -> dict[str, str]:
    """Return the versions and the number of threads that the bits of a run depend on."""
    return package_versions() | {"threads": str(torch.get_num_threads())}
