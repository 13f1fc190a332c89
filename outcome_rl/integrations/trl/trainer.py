"""TRL's GRPO trainer with outcome-based exploration.

Everything is TRL's except this: after a generation batch is scored, its outcomes are counted and the bonus is added to
its advantages; the explorer's state is saved in TRL's checkpoints and restored from them.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer

from outcome_rl.causal_lm import read_head
from outcome_rl.exploration.config import ExplorationConfig
from outcome_rl.exploration.explorer import Explorer, device_of_counts
from outcome_rl.exploration.saved import read_folder
from outcome_rl.exploration.scored import Scored
from outcome_rl.integrations.adapter import Turn, correct_by_reward, outcome_turn, validation, with_disagreement
from outcome_rl.integrations.trl.advantages import add_exploration
from outcome_rl.integrations.trl.checkpoints import newest_checkpoint
from outcome_rl.integrations.trl.columns import Columns, column_names
from outcome_rl.integrations.trl.compatibility import check_hooks
from outcome_rl.integrations.trl.fused_loss import (
    add_policy_loss,
    check_fused_loss,
    fused_policy_loss,
    loss_metrics,
)
from outcome_rl.outcomes.answer_mask import decode_completion
from outcome_rl.outcomes.batch import Batch
from outcome_rl.version import __version__
from outcome_rl_kernels.advantages.estimators import check_group_size
from outcome_rl_kernels.checks import check_number, did_you_mean

logger = logging.getLogger(__name__)

FOLDER = "exploration"  # in a checkpoint
_OF_CORRECTNESS = ("validation/pass_at_k", "validation/majority_correct")
# Loss types that treat the ratio as a constant: even with sequence-level ratios a token's advantage reaches only that
# token.
_DETACHED_RATIO = ("cispo", "vespo")


class OutcomeGRPOTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL is not installed where types are checked
    """`GRPOTrainer` with a bonus for outcomes (final answers) that were rarely seen before.

    `advantages = A + bonus`, where A is TRL's advantage, with any rewards, weights and scaling, or the result of
    another `adv_estimator` on the weighted sum of the rewards, or with `normalize_then_sum` on each reward. Evaluation
    counts nothing, and adds the metrics of `outcome_rl.metrics.validation_metrics` to TRL's. With `bonus="none"` the
    advantages are A and no token is masked; outcomes are still counted and reported.

    Args:
        *args, **kwargs: as for `GRPOTrainer`.
        exploration: settings; None takes the defaults, MaxRL with Batch, and
            `answer_mask_mode="none"` where a ratio of whole sequences cannot follow a mask.
        id_key: column of the stable id of the question; empty tries id, question_id, unique_id, and without one takes
            the hash of the prompt.
        answer_key: column of the reference answer, or of a solution that ends in it; empty tries answer, gold,
            solution, ground_truth, target, unless `correct_reward` or the kind of outcomes decides; None reads none.
        correct_reward: the reward function, or its name, that decides which responses are correct, or a list of
            them, of which each may give None for rows of other tasks; empty compares with the reference answer.
        correct_threshold: with `correct_reward`, a response is correct if its reward is at least this.
        fused_loss: compute the loss from hidden states by `linear_policy_loss`, in place of TRL's log-probabilities.
            Values and gradients equal TRL's. Only steps that are logged compute the tokens without a gradient, so the
            loss's metrics `entropy`, `kl` and `clip_ratio/...` describe the logged steps only.
        sample_below: with `fused_loss`, the probability in [0, 1) below which `linear_policy_loss` samples gradients of
            logits, such as 1e-4: gradients are TRL's on average, in one product with the head instead of three. Seeds
            follow from `args.seed`, step, micro-batch and rank. 0 (default) is off.

    Attributes:
        explorer: the `Explorer`, with the same counts and texts on every rank.

    Raises:
        TypeError: `exploration` is no `ExplorationConfig`, or `GRPOTrainer` lacks a method to
            build on.
        ValueError: the data lacks a column, or settings cannot be combined, TRL's with these or these with each other.

    Source: Song, Kempe, Munos, "Outcome-based Exploration for LLM Reasoning", 2025.
    """

    def __init__(
        self,
        *args: Any,
        exploration: ExplorationConfig | None = None,
        id_key: str = "",
        answer_key: str | None = "",
        correct_reward: str | Callable[..., Any] | Sequence[str | Callable[..., Any]] = "",
        correct_threshold: float = 1.0,
        fused_loss: bool = False,
        sample_below: float = 0.0,
        **kwargs: Any,
    ) -> None:
        check_hooks(GRPOTrainer)
        self._micro_batch = -1, 0  # the step, and how many losses of it were computed for training
        self._is_graded = False  # whether an evaluation had a reward other than 0 and 1
        self.fused_loss, self.sample_below = fused_loss, sample_below
        super().__init__(*args, **kwargs)
        group = dist.group.WORLD if self.accelerator.num_processes > 1 else None
        if exploration is None and self._ratio_reaches_answers():
            exploration = ExplorationConfig(answer_mask_mode="none")
        self.explorer = Explorer(exploration, device=device_of_counts(self.accelerator.device), process_group=group)
        self.correct_reward = correct_reward
        is_one = isinstance(correct_reward, str) or not isinstance(correct_reward, Sequence)
        named: Any = [correct_reward] if is_one else correct_reward
        self._correct_indices = [self._index_of_reward(reward) for reward in named if reward]
        self.correct_threshold = correct_threshold
        self._columns = Columns.find(self, id_key, answer_key)
        self._of_evaluation, self._left = self._columns, math.inf
        self.explorer.set_id_source(self._columns.id_source)
        for data in self.eval_dataset.values() if isinstance(self.eval_dataset, dict) else [self.eval_dataset]:
            self._columns.of_evaluation(data).check(data, self.explorer.matcher, needs_golds=False)
        self._check_settings()
        check_fused_loss(self)
        self.accelerator.print(f"outcome_rl {__version__}: {self._summary()}")
        if fused_loss:
            self._head = read_head(self.model)
            add_policy_loss(self.model)

    def _summary(self) -> str:
        """Return the settings and what was chosen from the data, in one line."""
        config, names = self.explorer.config, ", ".join(map(repr, self.reward_func_names))
        if self._correct_indices:
            judge = " and ".join(self.reward_func_names[i] for i in self._correct_indices)
        elif not self.explorer.matcher.needs_gold:
            judge = "the kind of outcomes"
        elif self._columns.golds:
            judge = f"the column {self._columns.golds!r}"
        else:
            judge = (
                f"unknown, but for rewards {names} of 0 and 1 alone"
                if len(self.reward_funcs) == 1
                else f"unknown, because the sum of {len(self.reward_funcs)} reward functions says nothing"
            )
            others = [name for name in column_names(self.train_dataset) if name not in ("prompt", self._columns.ids)]
            column = f"column of gold answers by answer_key ({', '.join(others)}), or a " if others else ""
            judge += f". Name a {column}reward function by correct_reward ({names}); until then there is no pass@k"
        on = f"on: {config.method}, answer_mask_mode={config.answer_mask_mode}"
        return (
            f"outcome-based exploration is {on if config.explores else f'off: {config.method}'}; question ids: "
            f"{self._columns.id_source}; correctness: {judge}"
        )

    def _check_settings(self) -> None:
        """Refuse settings of TRL that cannot be combined with exploration.

        Raises:
            ValueError: naming the alternatives.
        """
        if self.args.save_strategy != "no":
            self.explorer.state_dict()  # raises if it could not be saved
        if self.correct_reward and not self.explorer.matcher.needs_gold:
            raise ValueError(
                "correct_reward must be left out, because the kind of outcomes decides what is correct; got "
                f"{self.correct_reward!r}"
            )
        check_number("correct_threshold", self.correct_threshold)
        if self.correct_threshold != 1.0 and not self.correct_reward:
            raise ValueError(f"correct_threshold={self.correct_threshold} needs correct_reward, whose reward it bounds")
        check_group_size(self.explorer.config.estimator, self.num_generations)
        if self.top_p < 1 or self.top_k > 0 or self.min_p:
            logger.warning(
                "the loss is over the whole vocabulary, as TRL's is, though top_p=%s, top_k=%s and min_p=%s leave out "
                "tokens, so it is not the loss of the policy that samples. Leave them at their defaults, or train with "
                "outcome-rl train, whose loss is over the tokens that vLLM kept",
                *(self.top_p, self.top_k, self.min_p),
            )
        mode = self.explorer.config.answer_mask_mode
        if self.explorer.config.explores and mode in ("policy", "bonus") and self._ratio_reaches_answers():
            raise ValueError(
                f"answer_mask_mode={mode!r} cannot keep the bonus from the answer's tokens with "
                f"importance_sampling_level='sequence' and loss_type={self.loss_type!r}: the gradient of a sequence's "
                "ratio reaches all its tokens. Use fused_loss=True, importance_sampling_level='token', or "
                "answer_mask_mode='all' or 'none'"
            )

    def _ratio_reaches_answers(self) -> bool:
        """Whether the gradient of a sequence's ratio carries advantages to tokens that a mask would keep from them."""
        is_of_sequences = self.importance_sampling_level == "sequence"
        return is_of_sequences and self.loss_type not in _DETACHED_RATIO and not self.fused_loss

    def _index_of_reward(self, reward: str | Callable[..., Any]) -> int:
        """Return the index of a reward function, given as the function or by its name.

        Raises:
            ValueError: it is none of them.
        """
        functions = [*zip(self.reward_funcs, self.reward_func_names, strict=True)]
        found = [i for i, (function, name) in enumerate(functions) if reward is function or reward == name]
        if len(found) > 1:
            raise ValueError(f"correct_reward={reward!r} names {len(found)} reward functions; give the function itself")
        if not found:
            raise ValueError(
                f"correct_reward must be one of the reward functions {', '.join(map(repr, self.reward_func_names))}; "
                f"got {reward!r}{did_you_mean(reward, self.reward_func_names)}"
            )
        return found[0]

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train as `GRPOTrainer.train` does; True continues from the newest complete checkpoint."""
        if resume_from_checkpoint is True:
            resume_from_checkpoint = newest_checkpoint(Path(self.args.output_dir)) or True
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _generate(self, prompts: list[Any]) -> Any:
        generated = super()._generate(prompts)
        ids, written = generated[1], generated[2]
        # Later TRL pads them, and empties the masks of completions that were cut off.
        self._written = [[1] * len(row) for row in ids] if written is None else written
        return generated

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        rewards: Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._rewards = rewards  # (samples of all ranks, functions), NaN where a function gave None
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        rows = [dict(row) for row in inputs]  # TRL adds what a rollout_func returns for each completion
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if self.model.training:
            for name, value in self._explore(rows, output).metrics.items():
                self._metrics["train"][name].append(value)
            return output
        self._validate(rows, output)
        return output

    def evaluation_loop(self, dataloader: Any, *args: Any, **kwargs: Any) -> Any:
        """Evaluate as `GRPOTrainer` does; samples that fill the last batch of several processes are left out."""
        data = dataloader.dataset
        self._of_evaluation = self._columns.of_evaluation(data)
        self._left = len(data) * self.num_generations_eval if hasattr(data, "__len__") else math.inf
        return super().evaluation_loop(dataloader, *args, **kwargs)

    def _read(self, output: dict[str, Any]) -> tuple[list[tuple[int, ...]], list[Turn], list[str]]:
        """Return the tokens of each completion, its tokens that hold the outcome, and their text."""
        rows = zip(output["completion_ids"].tolist(), self._written, strict=True)
        ids = [tuple(row[: len(written)]) for row, written in rows]
        turns = [outcome_turn(self.explorer, *pair) for pair in zip(ids, self._written, strict=True)]
        return ids, turns, [decode_completion(self._tokenizer, turn.ids) for turn in turns]

    def _validate(self, rows: list[dict[str, Any]], output: dict[str, Any]) -> None:
        """Write metrics of an evaluation batch of all ranks: one value for each question, which TRL averages."""
        from accelerate.utils import gather_object  # comes with TRL

        ids, _, texts = self._read(output)
        columns = self._of_evaluation
        golds = [None if columns.golds is None else columns.gold(row, is_needed=False) for row in rows]
        examples = rows if self.explorer.matcher.reads == "rows" else [{}] * len(rows)
        gathered = gather_object([*zip(texts, golds, examples, ids, strict=True)])
        own = gathered[: int(min(len(gathered), self._left))]
        self._left -= len(own)
        if not own:
            return
        responses, all_golds, all_rows, completions = zip(*own, strict=True)
        rewards = self._rewards[: len(own)]
        groups = [str(i // self.num_generations_eval) for i in range(len(responses))]  # TRL's; rows may lack the id
        scores, metrics = rewards.nan_to_num(0.0), self._metrics["eval"]
        self._is_graded |= bool(((scores != 0) & (scores != 1)).any())
        batch = Batch(
            groups,
            responses,
            None if None in all_golds else all_golds,
            rows=all_rows if self.explorer.matcher.reads == "rows" else None,
            correct=correct_by_reward(rewards, self._correct_indices, self.correct_threshold),
            scores=None if self._is_graded else scores,
        )
        for name, values in validation(self.explorer, batch, completions).items():
            metrics[name].extend(values)
        if self._is_graded and not batch.correctness(is_correct=not self.explorer.matcher.needs_gold).source:
            for name in [name for name in metrics if name.startswith(_OF_CORRECTNESS)]:  # of batches before
                del metrics[name]

    def _explore(self, rows: list[dict[str, Any]], output: dict[str, Any]) -> Scored:
        first = self.accelerator.process_index * len(rows)
        local = slice(first, first + len(rows))
        unscored = self._rewards.isnan().all(dim=1)  # of all ranks
        weights = self.reward_weights.to(self._rewards)
        apart = self.multi_objective_aggregation == "normalize_then_sum"
        rewards = self._rewards if apart else (self._rewards * weights).nansum(dim=1).masked_fill(unscored, torch.nan)
        by_batch = self.scale_rewards == "batch" and not apart
        if by_batch:  # groups then share one divisor, TRL's
            rewards = rewards / (rewards[~unscored].std() + 1e-4)
        correct = correct_by_reward(self._rewards, self._correct_indices, self.correct_threshold)
        scores = self._rewards.nan_to_num(0.0)
        _, turns, texts = self._read(output)
        batch = Batch(
            [self._columns.id(row) for row in rows],
            texts,
            None if self._columns.golds is None else [self._columns.gold(row) for row in rows],
            torch.tensor(self._of_groups(rewards)[local].tolist()),
            reward_weights=weights.tolist() if apart else None,
            group_ids=[i // self.num_generations for i in range(local.start, local.stop)],
            correct=None if correct is None else correct[local].tolist(),
            rows=rows if self.explorer.matcher.reads == "rows" else None,
            scores=scores[local].tolist(),
        )
        scored = add_exploration(
            output,
            batch,
            turns,
            explorer=self.explorer,
            tokenizer=self._tokenizer,
            scale="none" if by_batch or self.scale_rewards == "none" else "std",
        )
        # As in TRL, a completion that no reward function scores gets advantage 0.
        output["advantages"][unscored[local]] = 0.0
        without = unscored.to(scored.bonuses.device)
        moved = {name: getattr(scored, name).masked_fill(without, 0.0) for name in ("advantages", "bonuses")}
        scored = replace(scored, **moved)
        return scored if self._correct_indices else with_disagreement(scored, self._rewards)

    def _of_groups(self, rewards: Tensor) -> Tensor:
        """Return rewards of all ranks, (samples, ...), with the mean of their group in place of NaN.

        So what was not scored does not move the mean that estimators subtract.
        """
        means = rewards.view(-1, self.num_generations, *rewards.shape[1:]).nanmean(dim=1).nan_to_num(0.0)
        return rewards.where(~rewards.isnan(), means.repeat_interleave(self.num_generations, dim=0))

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        if not self.fused_loss:
            loss: Tensor = super()._compute_loss(model, inputs)
            return loss
        output = fused_policy_loss(self, model, inputs)
        if self.logs_every_token():
            for name, value in loss_metrics(self, inputs, output).items():
                self._metrics["train" if self.model.training else "eval"][name].append(value)
        return output.loss

    def logs_every_token(self) -> bool:
        """Return whether this step is logged, with metrics over all tokens; others leave out what has no gradient."""
        step, args = self.state.global_step + 1, self.args
        if not self.model.training or args.logging_strategy == "epoch":
            return True
        if args.logging_strategy == "no":
            return False
        is_first = step == 1 and args.logging_first_step
        return bool(is_first or step >= self.state.max_steps or step % self.state.logging_steps == 0)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        # Before all else: TRL writes trainer_state.json last, and a checkpoint is complete once it is there.
        if self.args.should_save and not self.args.save_only_model:
            folder = Path(self._get_output_dir(trial=trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
            self.explorer.save(folder / FOLDER)
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            folder = Path(checkpoint, FOLDER)
            if not folder.is_dir():
                raise FileNotFoundError(
                    f"{checkpoint} holds no exploration state: GRPOTrainer made it, or save_only_model=True. To start "
                    f"with new counts, call trainer.explorer.save({str(folder)!r}) before trainer.train"
                )
            self.explorer.load_state_dict(read_folder(folder)[0])
            self.explorer.set_id_source(self._columns.id_source)
