"""Parts of a run, built in the order in which they need one another, and what a checkpoint holds of them.

data, model -> identity, compared with a checkpoint's -> updater, explorer -> log, engine -> collector
"""

import hashlib
import json
import logging
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from outcome_rl.exploration.explorer import Explorer
from outcome_rl.files.atomic import remove_unfinished, write_text
from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.load import to_yaml
from outcome_rl.grpo.config.schema import ActorConfig, ModelConfig, TrainConfig
from outcome_rl.grpo.data.problems import BatchOrder, load_problems
from outcome_rl.grpo.data.prompts import tokenize
from outcome_rl.grpo.data.reward import RewardFunction
from outcome_rl.grpo.model.dtype import with_dtype
from outcome_rl.grpo.model.policy import Policy, check_context
from outcome_rl.grpo.rollout.collector import Collector
from outcome_rl.grpo.rollout.engine import RolloutEngine, check_engine, open_engine
from outcome_rl.grpo.run.checkpoint import (
    CHECKPOINTS,
    check_same_run,
    find_run,
    mark_best,
    read_state,
    write_checkpoint,
)
from outcome_rl.grpo.run.evaluation import MACRO_VALIDATION, EvaluationPlan, best_steps, watched_set
from outcome_rl.grpo.run.open_explorer import load_explorer, new_explorer
from outcome_rl.grpo.run.run_lock import only_run_in
from outcome_rl.grpo.run.run_log import RunLog, set_aside
from outcome_rl.grpo.run.tracking import check_loggers, open_trackers
from outcome_rl.grpo.types import ProblemSet
from outcome_rl.grpo.update.updater import Updater
from outcome_rl.outcomes.kinds import OutcomeKind

logger = logging.getLogger(__name__)


@dataclass
class RunState:
    """Position of a run; a checkpoint holds it next to weights, optimizer and exploration."""

    step: int = 0  # updates done, skipped ones included
    drawn: int = 0  # batches of questions drawn
    skipped_updates: int = 0
    skipped_in_a_row: int = 0


@dataclass
class Parts:
    """Everything that a run holds in memory."""

    config: TrainConfig
    train_set: ProblemSet
    order: BatchOrder
    total_steps: int
    plan: EvaluationPlan
    policy: Policy
    updater: Updater
    explorer: Explorer
    engine: RolloutEngine
    collector: Collector
    log: RunLog
    state: RunState
    identity: dict[str, Any]  # what a checkpoint and the run that continues it must share
    start: dict[str, str]  # digests of the first policy and of the prompts, which it must share, too
    resources: ExitStack

    @property
    def checkpoints(self) -> Path:
        """The run's folder of checkpoints."""
        return self.config.run_dir / CHECKPOINTS

    def best(self) -> dict[str, tuple[int, float]]:
        """Return metric -> step and value, where it is the best on the validation data; rank zero has the log."""
        return _best(self.config, self.log)

    def save(self) -> None:
        """Write a checkpoint; all processes must call it."""
        policy, updater = self.policy.full_copy(), self.updater.state_dict()  # collective

        def fill(folder: Path) -> None:
            policy.save(folder / "model")
            torch.save(updater, folder / "optimizer.pt")
            self.explorer.save(folder / "exploration")
            content = {"run": asdict(self.state), "identity": self.identity, "start": self.start}
            (folder / "state.json").write_text(json.dumps(content | {"made with": _versions()}))

        keep, best = self.config.trainer.max_ckpt_to_keep, [step for step, _ in self.best().values()]
        distributed.on_rank_zero(lambda: write_checkpoint(self.checkpoints, self.state.step, fill, keep, best))

    def close(self) -> None:
        """Release the run's folder, its files and its worker processes."""
        self.resources.close()


def build(config: TrainConfig, announce: Callable[[str], None] = lambda phase: None) -> Parts:
    """Load data and model, and continue from the newest checkpoint in the run's folder if there is one.

    Args:
        config: all settings.
        announce: called with a description of each phase that may take long.

    Raises:
        FileNotFoundError, ValueError: bad data, model or settings, a folder that another run trains in, or a
            checkpoint of another run.
    """
    distributed.check(config.model.device, config.data.train_batch_size)
    check_engine(config)
    check_loggers(config.trainer.logger)
    reward = RewardFunction(config.reward) if config.reward.function else None
    announce(f"reading {', '.join(config.data.train_files)}")
    problems = load_problems(config.data.train_files, config.data, needs_answers=config.needs_answers)
    with ExitStack() as resources:  # released here if anything below raises
        if reward is not None:
            resources.callback(reward.close)
        resources.enter_context(distributed.process_group(config.model.device))
        distributed.on_rank_zero(lambda: resources.enter_context(only_run_in(config.run_dir)))
        distributed.on_rank_zero(lambda: remove_unfinished(config.run_dir / CHECKPOINTS))
        checkpoint, has_rows = distributed.on_rank_zero(lambda: find_run(config))
        saved = distributed.on_rank_zero(lambda: {} if checkpoint is None else read_state(checkpoint))
        # Rank zero chooses the data type, for all processes.
        saved_dtype = saved.get("identity", {}).get("model.dtype")
        model = distributed.on_rank_zero(lambda: with_dtype(config.model, saved_dtype))
        config = replace(config, model=model)

        announce(f"loading the model {model.path}")
        policy = _load_policy(model, config.actor)
        train_set = tokenize(problems, policy.tokenizer, config.data)
        order = BatchOrder(len(train_set.problems), config.data.train_batch_size, config.trainer.seed)
        total_steps = config.total_steps(order.steps_per_epoch)
        plan = EvaluationPlan(
            config.data, config.trainer.test_freq, policy.tokenizer, needs_answers=config.needs_answers
        )
        check_context(policy.model.config, plan.longest_prompt(train_set), config.data.max_response_length)

        identity = identity_of(config, train_set, plan, outcome_rule(config.exploration.matcher(), saved))
        start = {"initial weights": policy.digest(), "training prompts": _digest(train_set.prompts)}
        state = RunState(**saved.get("run", {}))
        if checkpoint is not None:
            check_same_run(saved["identity"], identity, checkpoint)
            check_same_run(saved["start"], start, checkpoint)
            check_length(state.step, total_steps, checkpoint)
            _warn_of_other_versions(checkpoint, saved["made with"])

        updater = Updater(policy, config, total_steps)  # its reference is the initial policy
        if checkpoint is None:
            explorer = new_explorer(config.exploration, model.device, config.trainer.initial_exploration, problems)
        else:
            explorer = load_explorer(config.exploration, model.device, checkpoint / "exploration")
            policy.load_weights(checkpoint / "model")
            updater.load_state_dict(torch.load(checkpoint / "optimizer.pt", "cpu", weights_only=True))
        resources.callback(explorer.close)
        log = _open_log(config, state.step, is_abandoned=has_rows and checkpoint is None)
        resources.callback(log.close)

        announce(f"starting the rollout engine {config.rollout.engine}")
        engine = resources.enter_context(closing(open_engine(policy, config)))
        collector = Collector(config, train_set, order, policy, engine, explorer, reward)
        return Parts(
            config=config,
            train_set=train_set,
            order=order,
            total_steps=total_steps,
            plan=plan,
            policy=policy,
            updater=updater,
            explorer=explorer,
            engine=engine,
            collector=collector,
            log=log,
            state=state,
            identity=identity,
            start=start,
            resources=resources.pop_all(),
        )


def check_length(done: int, total_steps: int, checkpoint: Path) -> None:
    """Refuse to continue a run that has done more steps than it is to have.

    Raises:
        ValueError: it has.
    """
    if done > total_steps:
        raise ValueError(
            f"trainer.total_training_steps gives {total_steps} steps, and {checkpoint} has done {done}: a run may be "
            "made longer, not shorter. Raise it, or start a new run under another trainer.experiment_name"
        )


def _load_policy(model: ModelConfig, actor: ActorConfig) -> Policy:
    # A policy that will be sharded need not fit on one GPU.
    policy = Policy.load(replace(model, device="cpu") if distributed.shards_policy(actor) else model)
    distributed.broadcast_parameters(policy.model)
    return policy


def _open_log(config: TrainConfig, step: int, *, is_abandoned: bool) -> RunLog:
    """Open the files of a run whose first steps are done; move the files of a run that cannot continue away."""
    if not distributed.is_rank_zero():
        return RunLog(None, last_step=step)
    if is_abandoned:
        folder = set_aside(config.run_dir)
        logger.warning("%s holds rows but no checkpoint: they are now in %s", config.run_dir, folder)
    log = RunLog(config.run_dir, last_step=step, trackers=open_trackers(config, step))
    if step:  # rewrite it from the log; the file may be stale
        mark_best(config.run_dir / CHECKPOINTS, _best(config, log))
    write_text(config.run_dir / "config.yaml", to_yaml(config))
    return log


def _best(config: TrainConfig, log: RunLog) -> dict[str, tuple[int, float]]:
    watched = watched_set(MACRO_VALIDATION, config.data.val_files)
    return best_steps(row for row in log.rows("evaluations") if row["dataset"] == watched)


def outcome_rule(kind: OutcomeKind, saved: Mapping[str, Any]) -> str:
    """Return the outcome rule of a run: that of its checkpoint, if the outcomes can be read again under this one."""
    before = saved.get("identity", {}).get("outcome rule", "")
    return before if kind.reads(before) else kind.rule


def identity_of(config: TrainConfig, train_set: ProblemSet, plan: EvaluationPlan, outcome_rule: str) -> dict[str, Any]:
    """Return what a checkpoint and the run that continues it must share."""
    data = {"training data": [train_set], "validation data": plan.validation, "test data": plan.test}
    contents = {name: _contents(sets) for name, sets in data.items()}
    return {**config.identity, **contents, "outcome rule": outcome_rule}


def _digest(prompts: Sequence[Sequence[int]]) -> str:
    return hashlib.sha256(json.dumps(prompts).encode()).hexdigest()[:16]


def _contents(sets: Sequence[ProblemSet]) -> str:
    return ", ".join(f"{len(dataset.problems)} problems with SHA-256 {dataset.fingerprint[:16]}" for dataset in sets)


def _warn_of_other_versions(checkpoint: Path, made_with: Mapping[str, str]) -> None:
    here = _versions()
    before = {name: made_with.get(name) for name in here}
    changes = [f"{name} {before[name]} before, {here[name]} now" for name in here if here[name] != before[name]]
    if changes and distributed.is_rank_zero():
        logger.warning(
            "%s was made with %s: the run goes on, but may not end with the same bits", checkpoint, "; ".join(changes)
        )


def _versions() -> dict[str, str]:
    """Return the versions and the number of threads that the bits of a run depend on."""
    return {
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "threads": str(torch.get_num_threads()),
    }
