"""The GRPO loop: rollout -> answer -> key -> count -> bonus -> advantage -> loss -> step.

problems (B) --engine--> responses (B * n, T) --matcher--> outcome keys, correct (B, n)
  --counts--> N before the batch (B, n) --> advantages + bonuses (B, n) --fused loss--> gradient --AdamW--> policy
"""

import json
import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from outcome_rl.files import write_text
from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.load import to_yaml
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.data.problems import BatchOrder, ProblemSet, load_problems
from outcome_rl.grpo.data.prompts import build_prompts
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.collector import Collected, Collector
from outcome_rl.grpo.rollout.engine import EngineDied, choose_engine
from outcome_rl.grpo.rollout.scoring import Scorer, question_keys
from outcome_rl.grpo.rollout.sharded_engine import DataParallelEngine
from outcome_rl.grpo.run.checkpoint import (
    check_same_run,
    latest_checkpoint,
    mark_best,
    read_best,
    read_state,
    write_checkpoint,
)
from outcome_rl.grpo.run.display import Display
from outcome_rl.grpo.run.evaluation import best_steps, evaluate
from outcome_rl.grpo.run.evaluation_plan import EvaluationPlan
from outcome_rl.grpo.run.logging import NoRecords, Records, has_records, set_aside
from outcome_rl.grpo.run.metrics import history_metrics, length_metrics, outcome_metrics, sample_rows, update_metrics
from outcome_rl.grpo.run.run_lock import Interrupted, collect_signals, only_run_in
from outcome_rl.grpo.run.tracking import check_loggers, open_trackers
from outcome_rl.grpo.update.microbatches import ScoredRollouts
from outcome_rl.grpo.update.stats import UpdateStats
from outcome_rl.grpo.update.updater import Updater
from outcome_rl_kernels import OutcomeCounts

logger = logging.getLogger(__name__)


class Trainer:
    """One run: everything it holds in memory, and the loop."""

    def __init__(self, config: TrainConfig) -> None:
        """Read data and model, and continue from the newest checkpoint of the run's folder if there is one.

        Raises:
            FileNotFoundError, ValueError: bad data, model or settings, a folder that another run trains in, or a
                checkpoint of another run.
        """
        self.config = config
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
        open_engine = choose_engine(config)
        check_loggers(config.trainer.logger)
        checkpoint, recorded = distributed.on_rank_zero(
            lambda: (latest_checkpoint(self.checkpoint_root), has_records(config.run_dir))
        )
        if (checkpoint is not None or recorded) and config.trainer.resume_mode == "disable":
            raise ValueError(
                f"{config.run_dir} already holds a run. Continue it with trainer.resume_mode=auto, or choose another "
                "trainer.experiment_name"
            )
        if config.rollout.top_p < 1 or config.rollout.top_k > 0:
            logger.warning(
                "rollout.top_p=%s and rollout.top_k=%s leave out tokens that the loss takes to be sampled too, so "
                "training is off-policy; use 1 and -1, or lower rollout.temperature, which the loss knows of",
                config.rollout.top_p,
                config.rollout.top_k,
            )
        # The whole of a policy that is to be shared out need not fit on a GPU.
        self.policy = Policy.load(
            replace(config.model, device="cpu") if distributed.shards_policy(config) else config.model
        )
        distributed.broadcast_parameters(self.policy.model)
        self.prompts = build_prompts(self.train_set, self.policy.tokenizer, config.data)
        self.question_keys = question_keys(self.prompts.problems)
        self.order = BatchOrder(
            len(self.prompts.problems),
            config.data.train_batch_size,
            shuffle=config.data.shuffle,
            seed=config.trainer.seed,
        )
        self.total_steps = (
            config.trainer.total_training_steps or config.trainer.total_epochs * self.order.steps_per_epoch
        )
        self.plan = EvaluationPlan(config, self.policy.tokenizer)
        self.matcher = self._resources.enter_context(config.exploration.matcher())
        self.updater = Updater(self.policy, config, self.total_steps)  # its reference is the initial policy
        self.counts = OutcomeCounts(rule=self.matcher.rule)
        self.solved: set[str] = set()
        self.step = self.saved_step = 0
        self.skipped_updates = self.skipped_in_a_row = 0
        drawn = 0 if checkpoint is None else self._restore(checkpoint)
        self.records = (
            self._open_records(recorded and checkpoint is None) if distributed.is_rank_zero() else NoRecords()
        )
        self._resources.callback(self.records.close)
        engine = self._resources.enter_context(open_engine(self.policy))
        self.engine = engine if distributed.world_size() == 1 else DataParallelEngine(engine, self.policy.device)
        scorer = Scorer(config, self.policy.tokenizer, self.policy.end_token_ids, self.matcher, self.counts)
        self.collector = Collector(config, self.prompts, self.order, self.engine, scorer, drawn)

    def _open_records(self, abandoned: bool) -> Records:
        config = self.config
        if abandoned:
            place = set_aside(config.run_dir)
            logger.warning("%s holds records but no checkpoint: they are now in %s", config.run_dir, place)
        records = Records(config.run_dir, last_step=self.step, trackers=open_trackers(config, self.step))
        write_text(config.run_dir / "config.yaml", to_yaml(config))
        return records

    @property
    def checkpoint_root(self) -> Path:
        return self.config.run_dir / "checkpoints"

    def close(self) -> None:
        """Release the run's folder, its files and its worker processes."""
        self._resources.close()

    def run(self) -> None:
        """Train to the last step, with checkpoints and evaluations on the way.

        Raises:
            Interrupted: SIGINT or SIGTERM came; the state is in a checkpoint. A second SIGINT stops at once.
            EngineDied: the rollout engine did, between two updates; the state is in a checkpoint, unless dynamic
                sampling had counted some of the next step already: then in that of an earlier step.
        """
        shown = "console" in self.config.trainer.logger and distributed.is_rank_zero()
        with Display(self.total_steps, self.step, quiet=not shown) as display, collect_signals() as received:
            display.say(self._headline())
            try:
                self._steps(received, display)
            except EngineDied:
                self._heed(received)  # a signal to all processes ends the engine's too
                self._save_if_new()
                raise
            if distributed.is_rank_zero():
                self._finish(display)

    def _steps(self, received: Sequence[int], display: Display) -> None:
        self._evaluate(received, display)
        while self.step < self.total_steps:
            collected, row = self._train_step(self.step + 1)
            self.step += 1
            self.records.append("metrics", row)
            display.step(row)
            self._record_samples(collected, display)
            if self._is_last or _due(self.step, self.config.trainer.save_freq):
                self._save()
            self._evaluate(received, display)

    def _train_step(self, step: int) -> tuple[Collected, dict[str, Any]]:
        """One update; nothing of it depends on more than the state."""
        start = time.perf_counter()
        collected = self.collector.collect()
        scores = collected.scores
        self.solved.update(
            problem.id
            for problem, solved in zip(collected.problems, scores.correct.any(dim=1).tolist(), strict=True)
            if solved
        )
        update = self._update(collected.batch)
        self.engine.update_weights(self.policy)
        step_s = time.perf_counter() - start
        rollouts = scores.batch.rollouts
        times = {
            "time/rollout_s": collected.rollout_s,
            "time/outcomes_s": collected.outcomes_s,
            "time/reference_s": update.reference_s if update else 0.0,
            "time/update_s": update.update_s if update else 0.0,
            "time/step_s": step_s,
            "time/outcomes_share": collected.outcomes_s / step_s,
            "perf/tokens_per_s": rollouts.num_tokens / step_s,
        }
        return collected, {
            "step": step,
            "epoch": (self.collector.drawn - 1) // self.order.steps_per_epoch,
            **outcome_metrics(scores),
            **collected.metrics,
            **history_metrics(self.counts, self.question_keys, self.prompts.problems, self.solved),
            **(update_metrics(update) if update else {}),
            "actor/skipped_updates": self.skipped_updates,
            **length_metrics(rollouts, self.config.data.max_response_length),
            **{name: round(value, 6) for name, value in times.items()},
        }

    def _update(self, batch: ScoredRollouts) -> UpdateStats | None:
        """Learn from a batch; None where that was skipped, because the gradient is not finite or there is nothing to
        learn from.

        Raises:
            FloatingPointError: so it was `trainer.max_skipped_updates` times in a row.
        """
        if not batch.trained.any():
            return None
        try:
            update = self.updater.step(batch)
        except FloatingPointError as error:
            self.skipped_updates += 1
            self.skipped_in_a_row += 1
            if self.skipped_in_a_row > self.config.trainer.max_skipped_updates:
                raise
            logger.warning("step %d: update skipped, %s", self.step + 1, error)
            return None
        self.skipped_in_a_row = 0
        return update

    @property
    def _is_last(self) -> bool:
        return self.step >= self.total_steps

    def _record_samples(self, collected: Collected, display: Display) -> None:
        trainer = self.config.trainer
        if not (self._is_last or _due(self.step, trainer.test_freq)):
            return
        samples = sample_rows(collected.scores, collected.problems, self.step, trainer.log_generations)
        for sample in samples:
            self.records.append("samples", sample)
        if self._is_last and samples:
            display.samples(samples)

    def _evaluate(self, received: Sequence[int], display: Display) -> None:
        """Evaluate what is due after this step and not on record: nearly always all of it, after a kill the rest.

        Raises:
            Interrupted: a signal came and something is left to do.
        """
        sets = self.plan.sets_at(self.step, is_last=self._is_last)
        done = distributed.on_rank_zero(lambda: {row["dataset"] for row in self._evaluations()}) if sets else set()
        for dataset, prompts in sets:
            if dataset.name in done:
                continue
            self._heed(received)
            evaluation = evaluate(
                self.engine,
                self.matcher,
                dataset,
                prompts,
                self.config.rollout.val_kwargs,
                self.config.data.max_response_length,
                self.config.trainer.seed,
            )
            row = {
                "step": self.step,
                "dataset": evaluation.dataset,
                **evaluation.summary,
                "time/evaluate_s": round(evaluation.seconds, 6),
            }
            self.records.append("evaluations", row)
            display.evaluation(row)
        if sets:
            for name, average in self.plan.averages(self._evaluations()).items():
                row = {"step": self.step, "dataset": name, **average}
                self.records.append("evaluations", row)
                display.evaluation(row)
            self._mark_best()
        if not self._is_last:
            self._heed(received)

    def _evaluations(self) -> list[dict[str, Any]]:
        """What is on record of this step."""
        return [row for row in self.records.rows("evaluations") if row["step"] == self.step]

    def _mark_best(self) -> None:
        """Keep the checkpoints that are the best on the validation data, by the records alone: a run that was stopped
        here comes to the same when it goes on."""
        best = distributed.on_rank_zero(
            lambda: best_steps(row for row in self.records.rows("evaluations") if row["dataset"] == self.plan.watched)
        )
        if any(step == self.step for step, _ in best.values()):
            self._save_if_new()
            distributed.on_rank_zero(lambda: mark_best(self.checkpoint_root, best))

    def _heed(self, received: Sequence[int]) -> None:
        signum = distributed.all_reduce_max(received[0] if received else 0)
        if signum:
            self._save_if_new()
            raise Interrupted(signum, f"after step {self.step}" if self.step else "before the first step")

    def _headline(self) -> str:
        origin = f"continues after step {self.step}" if self.step else "starts"
        parameters = sum(parameter.numel() for parameter in self.policy.model.parameters())
        processes = f" in {distributed.world_size()} processes" if distributed.world_size() > 1 else ""
        return (
            f"{self.config.run_dir} {origin}: {parameters:,} parameters on {self.policy.device}{processes}, "
            f"{len(self.prompts.problems)} training questions, {self.config.data.train_batch_size} x "
            f"{self.config.rollout.n} samples a step, bonus {self.config.exploration.bonus}"
        )

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint and the run that continues it must share."""
        data = {
            "training data": _contents([self.train_set]),
            "validation data": _contents([dataset for dataset, _ in self.plan.validation]),
            "test data": _contents([dataset for dataset, _ in self.plan.test]),
        }
        return {**self.config.identity, **data, "outcome rule": self.matcher.rule}

    def _save_if_new(self) -> None:
        if self.step > self.saved_step and not self.collector.torn:
            self._save()

    def _save(self) -> None:
        policy, updater = self.policy.gathered(), self.updater.state_dict()  # which all processes take part in

        def fill(folder: Path) -> None:
            policy.save(folder / "model")
            torch.save(updater, folder / "optimizer.pt")
            self.counts.save(folder / "counts.safetensors")
            state = {
                "step": self.step,
                "drawn": self.collector.drawn,
                "skipped_updates": [self.skipped_updates, self.skipped_in_a_row],
                "identity": self._identity(),
                "solved": sorted(self.solved),
                "matcher": self.matcher.state_dict(),
            }
            (folder / "state.json").write_text(json.dumps(state))

        keep = self.config.trainer.max_ckpt_to_keep
        distributed.on_rank_zero(lambda: write_checkpoint(self.checkpoint_root, self.step, fill, keep=keep))
        self.saved_step = self.step

    def _restore(self, checkpoint: Path) -> int:
        """Go on from a checkpoint; returns the number of batches that were drawn."""
        state = read_state(checkpoint)
        check_same_run(state["identity"], self._identity(), checkpoint)
        self.counts = OutcomeCounts.load(checkpoint / "counts.safetensors", rule=self.matcher.rule)
        self.matcher.load_state_dict(state["matcher"])
        self.policy.load_weights(checkpoint / "model")
        self.updater.load_state_dict(torch.load(checkpoint / "optimizer.pt", weights_only=True))
        self.solved = set(state["solved"])
        self.step = self.saved_step = state["step"]
        self.skipped_updates, self.skipped_in_a_row = state["skipped_updates"]
        return int(state["drawn"])

    def _finish(self, display: Display) -> None:
        """The report and the tables of base against trained, from the records."""
        from outcome_rl.grpo.run.report import compare, write_report

        run_dir, data = self.config.run_dir, self.config.data
        for _, base, trained in compare(self.records.rows("evaluations"), data.test_files, data.val_files):
            display.comparison(base, trained)
        report = write_report([run_dir], run_dir / "report.html")
        display.say(
            f"{run_dir}/ holds config.yaml, metrics.jsonl, evaluations.jsonl, samples.jsonl, {report.name}, and the "
            f"model in {latest_checkpoint(self.checkpoint_root)}/model"
        )
        for name, best in read_best(self.checkpoint_root).items():
            display.say(f"the best {name} on validation, {best['value']:.3f}, is that of {best['checkpoint']}")


def train(config: TrainConfig) -> None:
    """Run `config` to its end, continuing where an earlier process stopped.

    Raises:
        FileNotFoundError, ValueError: bad data, model or settings, or a checkpoint of another run.
        Interrupted: stopped by a signal, after a checkpoint.
    """
    trainer = Trainer(config)
    try:
        trainer.run()
    finally:
        trainer.close()


def _contents(sets: Sequence[ProblemSet]) -> str:
    return ", ".join(f"{len(dataset.problems)} problems with SHA-256 {dataset.fingerprint[:16]}" for dataset in sets)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
