"""The GRPO loop: rollout -> answer -> key -> count -> bonus -> advantage -> loss -> step.

questions (B) --engine--> rollouts (N = B * n) --explorer--> outcomes, counts, advantages and bonuses (N)
  --samples--> packed micro-batches --fused loss--> gradient --AdamW--> policy
"""

import json
import logging
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from outcome_rl.files import write_text
from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.load import to_yaml
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.data.problems import BatchOrder, load_problems
from outcome_rl.grpo.data.prompts import tokenize
from outcome_rl.grpo.data.reward import RewardFunction
from outcome_rl.grpo.model.dtype import with_dtype
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.collector import Collected, Collector
from outcome_rl.grpo.rollout.engine import DataParallelEngine, RolloutEngine, choose_engine
from outcome_rl.grpo.run.checkpoint import (
    CHECKPOINTS,
    check_same_run,
    find_run,
    latest_checkpoint,
    mark_best,
    read_state,
    write_checkpoint,
)
from outcome_rl.grpo.run.display import Display
from outcome_rl.grpo.run.evaluation import MACRO_VALIDATION, EvaluationPlan, best_steps, evaluate, watched_set
from outcome_rl.grpo.run.exploration import load_explorer, new_explorer
from outcome_rl.grpo.run.logging import Records, set_aside
from outcome_rl.grpo.run.run_lock import Interrupted, collect_signals, only_run_in
from outcome_rl.grpo.run.tracking import check_loggers, open_trackers
from outcome_rl.grpo.types import EngineDied, ProblemSet, Sample
from outcome_rl.grpo.update.updater import Updater

logger = logging.getLogger(__name__)

AHEAD = "ahead.json"  # of a checkpoint: responses that were sampled for the next step, with `rollout.overlap`
MOSTLY_ANSWER = 0.9  # share of the entropy on answer tokens from which masking them is probably a mistake


@dataclass
class RunState:
    """Position of a run; a checkpoint holds it next to weights, optimizer and exploration."""

    step: int = 0  # updates done, skipped ones included
    drawn: int = 0  # batches of questions drawn
    skipped_updates: int = 0
    skipped_in_a_row: int = 0


class Trainer:
    """One run: everything it holds in memory, and the loop."""

    def __init__(self, config: TrainConfig) -> None:
        """Load data and model, and continue from the newest checkpoint in the run's folder if there is one.

        Raises:
            FileNotFoundError, ValueError: bad data, model or settings, a folder that another run trains in, or a
                checkpoint of another run.
        """
        self.config = config
        self._warned = False
        distributed.check(config)
        if config.trainer.num_threads is not None:
            torch.set_num_threads(config.trainer.num_threads)
        self.train_set = load_problems(config.data.train_files, config.data, config.data.train_max_samples)
        self._resources = ExitStack()
        with self._resources:  # released here if anything below raises
            self._resources.enter_context(distributed.process_group(config))
            distributed.on_rank_zero(lambda: self._resources.enter_context(only_run_in(config.run_dir)))
            self._load()
            self._resources = self._resources.pop_all()

    def _load(self) -> None:
        config = self.config
        checkpoint, recorded = distributed.on_rank_zero(lambda: find_run(config))
        saved = distributed.on_rank_zero(lambda: {} if checkpoint is None else read_state(checkpoint))
        self.config = config = self._with_dtype(saved)
        open_engine = choose_engine(config)
        check_loggers(config.trainer.logger)
        reward = RewardFunction(config.reward.function) if config.reward.function else None
        self.explorer = new_explorer(config, self.train_set) if checkpoint is None else load_explorer(config)
        self._resources.callback(lambda: self.explorer.close())
        self._load_model_and_data()
        self.updater = Updater(self.policy, config, self.total_steps)  # its reference is the initial policy
        self.state = RunState()
        if checkpoint is not None:
            self._restore(checkpoint, saved)
        self.saved_step = self.state.step
        self.records = self._open_records(abandoned=recorded and checkpoint is None)
        self._resources.callback(self.records.close)
        engine = self._resources.enter_context(open_engine(self.policy))
        self.engine: RolloutEngine = engine if distributed.world_size() == 1 else DataParallelEngine(engine)
        self.collector = Collector(config, self.train_set, self.order, self.policy, self.engine, self.explorer, reward)
        if checkpoint is not None and (checkpoint / AHEAD).exists():
            self.collector.restore_ahead(json.loads((checkpoint / AHEAD).read_text()))

    def _with_dtype(self, saved: Mapping[str, Any]) -> TrainConfig:
        """Return the configuration with the data type that rank zero chooses, for all processes."""
        before = saved.get("identity", {}).get("model.dtype")
        return replace(self.config, model=distributed.on_rank_zero(lambda: with_dtype(self.config.model, before)))

    def _load_model_and_data(self) -> None:
        config = self.config
        # A policy that will be sharded need not fit on one GPU.
        sharded = distributed.shards_policy(config)
        self.policy = Policy.load(replace(config.model, device="cpu") if sharded else config.model)
        distributed.broadcast_parameters(self.policy.model)
        self.train_set = tokenize(self.train_set, self.policy.tokenizer, config.data)
        self.order = BatchOrder(
            len(self.train_set.problems),
            config.data.train_batch_size,
            shuffle=config.data.shuffle,
            seed=config.trainer.seed,
        )
        epochs = config.trainer.total_epochs
        self.total_steps = config.trainer.total_training_steps or epochs * self.order.steps_per_epoch
        self.plan = EvaluationPlan(config, self.policy.tokenizer)

    def _open_records(self, *, abandoned: bool) -> Records:
        config, step = self.config, self.state.step
        if not distributed.is_rank_zero():
            return Records(None, last_step=step)
        if abandoned:
            folder = set_aside(config.run_dir)
            logger.warning("%s holds records but no checkpoint: they are now in %s", config.run_dir, folder)
        records = Records(config.run_dir, last_step=step, trackers=open_trackers(config, step))
        if step:  # the records decide, whatever became of the file
            mark_best(self.checkpoint_root, self._best(records))
        write_text(config.run_dir / "config.yaml", to_yaml(config))
        return records

    @property
    def checkpoint_root(self) -> Path:
        return self.config.run_dir / CHECKPOINTS

    def close(self) -> None:
        """Release the run's folder, its files and its worker processes."""
        self._resources.close()

    def run(self) -> None:
        """Train to the last step, with checkpoints and evaluations on the way.

        Raises:
            Interrupted: SIGINT or SIGTERM came; the state is in a checkpoint. A second SIGINT stops at once.
            EngineDied: the rollout engine died between two updates; the state is in a checkpoint, or in that of an
                earlier step if dynamic sampling had already counted a part of the next step.
        """
        shown = "console" in self.config.trainer.logger and distributed.is_rank_zero()
        with Display(self.total_steps, self.state.step, quiet=not shown) as display, collect_signals() as received:
            display.say(self._headline())
            try:
                self._steps(received, display)
            except EngineDied:
                self._raise_if_interrupted(received)  # a signal to all processes ends the engine's too
                self._save_if_new()
                raise
            if distributed.is_rank_zero():
                self._finish(display)

    def _steps(self, received: Sequence[int], display: Display) -> None:
        self._evaluate(received, display)
        while self.state.step < self.total_steps:
            collected, row = self.train_step()
            self.records.append("metrics", row)
            display.step(row)
            self._record_samples(collected, display)
            if self._is_last or _every(self.config.trainer.save_freq, self.state.step):
                self._save()
            self._evaluate(received, display)

    def train_step(self) -> tuple[Collected, dict[str, Any]]:
        """Make one update, as a function of the state alone, and return its samples and its row of the metrics."""
        start = time.perf_counter()
        collected = self.collector.collect(self.state.drawn, is_last=self.state.step + 1 >= self.total_steps)
        self.state.drawn += collected.num_batches
        update = self._update(collected.batch)
        self.engine.update_weights(self.policy)
        self.state.step += 1
        step_s = time.perf_counter() - start
        times = {
            "time/rollout_s": collected.rollout_s,
            "time/outcomes_s": collected.outcomes_s,
            "time/reference_s": update.pop("time/reference_s", 0.0),
            "time/update_s": update.pop("time/update_s", 0.0),
            "time/step_s": step_s,
            "time/outcomes_share": collected.outcomes_s / step_s,
            "perf/tokens_per_s": sum(len(sample.rollout.token_ids) for sample in collected.samples) / step_s,
        }
        return collected, {
            "step": self.state.step,
            "epoch": (self.state.drawn - 1) // self.order.steps_per_epoch,
            **collected.metrics,
            **update,
            "actor/skipped_updates": self.state.skipped_updates,
            **{name: round(value, 6) for name, value in times.items()},
        }

    def _update(self, batch: Sequence[Sample]) -> dict[str, float]:
        """Learn from a batch and return the update's metrics.

        They are empty if the update is skipped, because the gradient is not finite or no sample is trained on.

        Raises:
            FloatingPointError: more than `trainer.max_skipped_updates` gradients in a row are not finite.
        """
        if not any(sample.trained for sample in batch):
            return {}
        try:
            frequency, step = self.config.trainer.entropy_freq, self.state.step + 1
            metrics = self.updater.step(batch, every_token=_every(frequency, step) or (frequency > 0 and step == 1))
        except FloatingPointError as error:
            self.state.skipped_updates += 1
            self.state.skipped_in_a_row += 1
            if self.state.skipped_in_a_row > self.config.trainer.max_skipped_updates:
                raise
            logger.warning("step %d: update skipped, %s", self.state.step + 1, error)
            return {}
        self.state.skipped_in_a_row = 0
        self._warn_if_answers_are_all(metrics.get("entropy/answer_share", 0.0))
        return metrics

    def _warn_if_answers_are_all(self, share: float) -> None:
        """Warn once if the answer mask leaves nearly nothing to learn from: a policy learns where it is random."""
        masks = self.config.exploration.answer_mask_mode == "policy"
        if share > MOSTLY_ANSWER and masks and not self._warned and distributed.is_rank_zero():
            self._warned = True
            logger.warning(
                "step %d: %.0f %% of the policy's entropy lies on the tokens of answers, which "
                "exploration.answer_mask_mode=policy takes out of the policy term, so there is little to learn from. "
                "Where responses are answers without reasoning, set exploration.answer_mask_mode=none",
                self.state.step + 1,
                100 * share,
            )

    @property
    def _is_last(self) -> bool:
        return self.state.step >= self.total_steps

    def _record_samples(self, collected: Collected, display: Display) -> None:
        """Record the first sample of some questions of the step."""
        trainer = self.config.trainer
        if not (self._is_last or _every(trainer.test_freq, self.state.step)):
            return
        chosen = collected.samples[:: self.config.rollout.n][: trainer.log_generations]
        rows = [sample.row(self.state.step) for sample in chosen]
        for row in rows:
            self.records.append("samples", row)
        if self._is_last and rows:
            display.samples(rows)

    def _evaluate(self, received: Sequence[int], display: Display) -> None:
        """Run the evaluations that are due after this step and not on record; after a kill some are.

        Raises:
            Interrupted: a signal came, and something is left to do.
        """
        step = self.state.step
        sets = self.plan.sets_at(step, is_last=self._is_last)
        done = distributed.on_rank_zero(lambda: {row["dataset"] for row in self._evaluations()}) if sets else set()
        for dataset in sets:
            if dataset.name in done:
                continue
            self._raise_if_interrupted(received)
            found = evaluate(
                self.engine,
                self.explorer.matcher,
                dataset,
                self.config.rollout.val_kwargs,
                self.config.data.max_response_length,
                self.config.trainer.seed,
            )
            row = {"step": step, **found}
            self.records.append("evaluations", row)
            display.evaluation(row)
        if sets:
            for name, average in self.plan.averages(self._evaluations()).items():
                row = {"step": step, "dataset": name, **average}
                self.records.append("evaluations", row)
                display.evaluation(row)
            self._mark_best()
        if not self._is_last:
            self._raise_if_interrupted(received)

    def _evaluations(self) -> list[dict[str, Any]]:
        """Return the evaluations on record for this step."""
        return [row for row in self.records.rows("evaluations") if row["step"] == self.state.step]

    def _mark_best(self) -> None:
        """Save a step that is the best on the validation data; the records alone decide, so resuming is safe."""
        best = distributed.on_rank_zero(lambda: self._best(self.records))
        if any(step == self.state.step for step, _ in best.values()):
            self._save_if_new()
            distributed.on_rank_zero(lambda: mark_best(self.checkpoint_root, best))

    def _best(self, records: Records) -> dict[str, tuple[int, float]]:
        watched = watched_set(MACRO_VALIDATION, self.config.data.val_files)
        return best_steps(row for row in records.rows("evaluations") if row["dataset"] == watched)

    def _raise_if_interrupted(self, received: Sequence[int]) -> None:
        """If any process received a signal, save, log and raise; all processes must call it."""
        signum = distributed.all_reduce_max(received[0] if received else 0)
        if signum:
            self._save_if_new()
            step = self.state.step
            interruption = Interrupted(signum, f"after step {step}" if step else "before the first step")
            # Before any process leaves: torchrun ends the others as soon as one has.
            distributed.on_rank_zero(lambda: logger.warning("%s; the same command continues it", interruption))
            raise interruption

    def _headline(self) -> str:
        origin = f"continues after step {self.state.step}" if self.state.step else "starts"
        parameters = sum(parameter.numel() for parameter in self.policy.model.parameters())
        processes = f" in {distributed.world_size()} processes" if distributed.world_size() > 1 else ""
        return (
            f"{self.config.run_dir} {origin}: {parameters:,} parameters in {self.config.model.dtype} on "
            f"{self.policy.device}{processes}, "
            f"{len(self.train_set.problems)} training questions, {self.config.data.train_batch_size} x "
            f"{self.config.rollout.n} samples per step, bonus {self.config.exploration.bonus}"
        )

    def _identity(self) -> dict[str, Any]:
        """Return everything that a checkpoint and the run that continues it must share."""
        data = {
            "training data": _contents([self.train_set]),
            "validation data": _contents(self.plan.validation),
            "test data": _contents(self.plan.test),
        }
        return {**self.config.identity, **data, "outcome rule": self.explorer.matcher.rule}

    def _save_if_new(self) -> None:
        if self.state.step > self.saved_step and self.collector.wait_until_savable():
            self._save()

    def _save(self) -> None:
        """Write a checkpoint; all processes must call it."""
        ahead = self.collector.ahead()
        policy, updater = self.policy.full_copy(), self.updater.state_dict()  # collective

        def fill(folder: Path) -> None:
            policy.save(folder / "model")
            torch.save(updater, folder / "optimizer.pt")
            self.explorer.save(folder / "exploration")
            if ahead:
                (folder / AHEAD).write_text(json.dumps(ahead))
            content = {"run": asdict(self.state), "identity": self._identity(), "made with": _versions()}
            (folder / "state.json").write_text(json.dumps(content))

        step, keep = self.state.step, self.config.trainer.max_ckpt_to_keep
        best = [step for step, _ in self._best(self.records).values()]
        distributed.on_rank_zero(lambda: write_checkpoint(self.checkpoint_root, step, fill, keep, best))
        self.saved_step = step

    def _restore(self, checkpoint: Path, saved: Mapping[str, Any]) -> None:
        """Continue from a checkpoint, given its `state.json`; raise ValueError if it belongs to another run."""
        check_same_run(saved["identity"], self._identity(), checkpoint)
        self.explorer = load_explorer(self.config, checkpoint / "exploration")
        self.policy.load_weights(checkpoint / "model")
        self.updater.load_state_dict(torch.load(checkpoint / "optimizer.pt", "cpu", weights_only=True))
        self.state = RunState(**saved["run"])
        before, now = saved["made with"], _versions()
        changes = [f"{name} {before[name]} before, {now[name]} now" for name in now if now[name] != before[name]]
        if changes and distributed.is_rank_zero():
            logger.warning(
                "%s was made with %s: the run goes on, but may not end with the same bits",
                checkpoint,
                "; ".join(changes),
            )

    def _finish(self, display: Display) -> None:
        """Write the report, and show the tables of base against trained, from the records."""
        from outcome_rl.grpo.run.report import read_run, write_report

        run_dir = self.config.run_dir
        run = read_run(run_dir)
        for _, base, trained in run.comparisons:
            display.comparison(base, trained)
        report = write_report([run_dir], run_dir / "report.html")
        display.say(
            f"{run_dir}/ holds config.yaml, metrics.jsonl, evaluations.jsonl, samples.jsonl, {report.name}, and the "
            f"model in {latest_checkpoint(self.checkpoint_root)}/model"
        )
        for name, (step, value) in run.best.items():
            display.say(f"best {name} on validation: {value:.3f}, in global_step_{step}")


def train(config: TrainConfig) -> None:
    """Run `config` to its end, continuing where an earlier process stopped.

    Raises:
        FileNotFoundError, ValueError: bad data, model or settings, or a checkpoint of another run.
        Interrupted: stopped by a signal, after a checkpoint.
    """
    with closing(Trainer(config)) as trainer:
        trainer.run()


def _contents(sets: Sequence[ProblemSet]) -> str:
    return ", ".join(f"{len(dataset.problems)} problems with SHA-256 {dataset.fingerprint[:16]}" for dataset in sets)


def _versions() -> dict[str, str]:
    """Return the versions and the number of threads that the bits of a run depend on."""
    return {
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "threads": str(torch.get_num_threads()),
    }


def _every(frequency: int, step: int) -> bool:
    return frequency > 0 and step % frequency == 0
