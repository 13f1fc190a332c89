"""TRL's GRPO trainer with outcome-based exploration.

Everything is TRL's but this: after a generation batch is scored, its outcomes are counted and the bonus is added to its
advantages; counts, outcome classes and solved questions go into TRL's checkpoints and come back from them.
"""

import hashlib
import json
import os
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer

from outcome_rl.grpo.run.metrics import distinct_in_groups
from outcome_rl.integrations.trl.compatibility import check_hooks
from outcome_rl.integrations.trl.config import Columns, ExplorationConfig
from outcome_rl.integrations.trl.exploration import Exploration, exploration_advantages
from outcome_rl.integrations.trl.fused_loss import add_policy_loss, check_fused_loss, fused_policy_loss
from outcome_rl.outcomes.keys import NO_ANSWER
from outcome_rl.outcomes.matcher import OutcomeMatcher
from outcome_rl_kernels import OutcomeCounts

STATE_FILE = "exploration.pt"
_COLUMNS = ("exploration/outcome", "exploration/count", "exploration/bonus")  # of TRL's table of completions
# Loss types whose gradient at a token is that token's own even where the ratio is the whole sequence's: the ratio is a
# constant to them.
_DETACHED_RATIO = ("cispo", "vespo")


class OutcomeGRPOTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL is not installed where types are checked
    """`GRPOTrainer` with a bonus for outcomes (final answers) that were rarely seen before.

    `advantages = A + bonus`, where A is TRL's own, of any rewards, weights and scaling. Evaluation is TRL's own: it
    reads no outcome and counts nothing.

    Args:
        *args, **kwargs: as for `GRPOTrainer`.
        exploration: settings; None takes the defaults, the paper's `ucb_con`.
        fused_loss: take the loss from hidden states by `linear_policy_loss`, in place of TRL's log-probabilities. Its
            values and gradients are TRL's.

    Attributes:
        counts: `OutcomeCounts`, the same on every rank.
        matcher: `OutcomeMatcher`; rank 0's decides for all.
        solved: question id -> whether a correct response was ever sampled, for every question sampled so far.

    Raises:
        TypeError: `exploration` is not an `ExplorationConfig`, or `GRPOTrainer` lacks a method to build on.
        ValueError: the data lacks a column, or settings of TRL cannot be combined with these.

    Source: Song, Kempe, Munos, "Outcome-based Exploration for LLM Reasoning", 2025.
    """

    def __init__(
        self, *args: Any, exploration: ExplorationConfig | None = None, fused_loss: bool = False, **kwargs: Any
    ) -> None:
        check_hooks(GRPOTrainer)
        if exploration is not None and not isinstance(exploration, ExplorationConfig):
            raise TypeError(
                "exploration must be an outcome_rl.integrations.trl.ExplorationConfig; got "
                f"{type(exploration).__module__}.{type(exploration).__qualname__}"
            )
        self._fused: tuple[Tensor, Tensor] | None = None  # the fused loss's logps and entropies, while TRL reads them
        super().__init__(*args, **kwargs)
        self.exploration = ExplorationConfig() if exploration is None else exploration
        self.fused_loss = fused_loss
        self._columns = self._find_columns()
        self._check_settings()
        if fused_loss:
            check_fused_loss(self)
            add_policy_loss(self.model)
        self.matcher = OutcomeMatcher(
            self.exploration.equivalence, self.exploration.workers, self.exploration.timeout_s
        )
        self.counts = OutcomeCounts(rule=self.matcher.rule)
        self.solved: dict[str, bool] = {}

    def _find_columns(self) -> Columns:
        """Where the training data holds ids and golds.

        Raises:
            ValueError: it lacks one that is needed.
        """
        names = self.train_dataset.column_names or list(next(iter(self.train_dataset)))  # a stream may not know them
        if self.args.remove_unused_columns:
            self._set_signature_columns_if_needed()
            names = [name for name in names if name in self._signature_columns]
        columns = self.exploration.columns(names)
        more = [name for name in ("image", "images") if name in names]
        if self.environment_factories is not None:
            more.append("environment")
        if columns.question_id is None and more:
            raise ValueError(
                f"a question is more than its prompt with {more[0]!r}, so its outcomes must be counted under an id; "
                f"the training data has the columns {', '.join(map(repr, names))}. Name that of the id by "
                "exploration.id_key"
            )
        return columns

    def _check_settings(self) -> None:
        """Refuse settings of TRL that cannot be combined with exploration.

        Raises:
            ValueError: naming what could take their place.
        """
        name = self.exploration.correct_reward
        if name and name not in self.reward_func_names:
            raise ValueError(
                f"exploration.correct_reward must be one of the reward functions "
                f"{', '.join(map(repr, self.reward_func_names))}; got {name!r}"
            )
        mode = self.exploration.answer_mask_mode
        if (
            self.exploration.explores
            and mode in ("policy", "bonus")
            and self.importance_sampling_level == "sequence"
            and self.loss_type not in _DETACHED_RATIO
            and not self.fused_loss
        ):
            raise ValueError(
                f"answer_mask_mode={mode!r} cannot keep the bonus from the answer's tokens with "
                f"importance_sampling_level='sequence' and loss_type={self.loss_type!r}: the gradient of a sequence's "
                "ratio reaches all its tokens. Use fused_loss=True, whose tokens have gradients of their own, "
                "importance_sampling_level='token', or exploration.answer_mask_mode='all' or 'none'"
            )

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        rewards: Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._rewards = rewards  # (samples of all ranks, functions), NaN where a function gave None
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if self.model.training:
            self._record(self._explore(inputs, output))
        elif self.log_completions:
            self._log_samples({name: [None] * len(self._rewards) for name in self._logs["extra"] if name in _COLUMNS})
        return output

    def _explore(self, inputs: list[dict[str, Any]], output: dict[str, Any]) -> Exploration:
        id_key, gold_key = self._columns
        first = self.accelerator.process_index * len(inputs)
        rewards = self._rewards[first : first + len(inputs)]
        correct = None
        if self.exploration.correct_reward:
            which = self.reward_func_names.index(self.exploration.correct_reward)
            correct = (rewards[:, which] >= self.exploration.correct_threshold).tolist()
        found = exploration_advantages(
            output,
            [_prompt_digest(row["prompt"]) if id_key is None else _cell(row, id_key) for row in inputs],
            None if gold_key is None else [_cell(row, gold_key) for row in inputs],
            config=self.exploration,
            counts=self.counts,
            matcher=self.matcher,
            tokenizer=self._tokenizer,
            num_generations=self.num_generations,
            correct=correct,
        )
        # A completion that no reward function scores must not move the policy, by TRL's rule.
        output["advantages"][rewards.isnan().all(dim=1)] = 0.0
        return found

    def _record(self, found: Exploration) -> None:
        """Remember what was solved, and write TRL's metrics and its table of completions."""
        correct = torch.zeros_like(found.outcome_keys) if found.correct is None else found.correct
        for question_id, solved in zip(found.question_ids, correct.any(dim=1).tolist(), strict=True):
            self.solved[question_id] = self.solved.get(question_id, False) or solved
        answered = found.outcome_keys != NO_ANSWER
        metrics: dict[str, Tensor | float] = {
            "bonus_mean": found.bonuses.mean(),
            "bonus_abs_mean": found.bonuses.abs().mean(),
            "new_outcome_rate": ((found.counts == 0) & answered).float().mean(),
            "distinct_outcomes": distinct_in_groups(found.outcome_keys).float().mean(),
            "no_answer_rate": 1 - answered.float().mean(),
            "counted_outcomes": len(self.counts),
            "unresolved": found.unresolved,
        }
        if found.correct is not None:
            metrics["correct_rate"] = found.correct.float().mean()
            metrics["all_correct_groups"] = found.correct.all(dim=1).float().mean()
            metrics["solved_fraction"] = sum(self.solved.values()) / len(self.solved)
        for name, value in metrics.items():
            self._metrics["train"][f"exploration/{name}"].append(float(value))
        if self.log_completions:
            bonuses = [round(bonus, 4) for bonus in found.bonuses.flatten().tolist()]
            columns = (found.answers, found.counts.flatten().tolist(), bonuses)
            self._log_samples(dict(zip(_COLUMNS, columns, strict=True)))

    def _log_samples(self, columns: dict[str, list[Any]]) -> None:
        """Add to TRL's table of completions, all of whose columns have a row a completion, those of evaluation too."""
        for name, values in columns.items():
            self._logs["extra"][name].extend(values)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        if not self.fused_loss:
            loss: Tensor = super()._compute_loss(model, inputs)
            return loss
        fused = fused_policy_loss(self, model, inputs)
        self._fused = fused.logps, fused.entropies
        try:
            with torch.no_grad():
                super()._compute_loss(model, inputs)  # for TRL's metrics, of our log-probabilities
        finally:
            self._fused = None
        return fused.loss

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        if self._fused is not None:
            return (*self._fused, None)
        return super()._get_per_token_logps_and_entropies(*args, **kwargs)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        # Before all else: a checkpoint that can be continued, which ends with trainer_state.json, then has this too.
        if self.args.should_save and not self.args.save_only_model:
            folder = Path(self._get_output_dir(trial=trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
            folder.mkdir(parents=True, exist_ok=True)
            scratch = folder / f"{STATE_FILE}.unfinished"
            state = {
                "id_key": self._columns.question_id,
                "counts": self.counts.state_dict(),
                "matcher": self.matcher.state_dict(),
                "solved": self.solved,
            }
            torch.save(state, scratch)
            os.replace(scratch, folder / STATE_FILE)
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self._load_exploration(Path(checkpoint, STATE_FILE))

    def _load_exploration(self, path: Path) -> None:
        """Go on with saved counts, classes and solved questions.

        Raises:
            FileNotFoundError: the checkpoint was written by another trainer.
            ValueError: the file is damaged, or its counts were made under another outcome rule or other question ids.
        """
        if not path.is_file():
            raise FileNotFoundError(
                f"{path.parent} has no {STATE_FILE}: OutcomeGRPOTrainer did not write it, or did with "
                "save_only_model=True. Continue from another checkpoint, or start a new run from its weights, which "
                "counts from 0"
            )
        try:
            state = torch.load(path, weights_only=True)
        except (OSError, RuntimeError, EOFError, UnpicklingError) as error:
            raise ValueError(f"{path} is damaged. Continue from another checkpoint") from error
        if state["id_key"] != self._columns.question_id:
            was, now = (
                "a hash of the prompt" if key is None else f"the column {key!r}"
                for key in (state["id_key"], self._columns.question_id)
            )
            raise ValueError(
                f"{path.parent} counted outcomes under {was}, and this run would under {now}. Set exploration.id_key "
                "as it was, or start a new run"
            )
        self.matcher.load_state_dict(state["matcher"])
        self.counts.load_state_dict(state["counts"])
        self.solved = state["solved"]


def _cell(row: dict[str, Any], column: str) -> str:
    """A row's id or gold as text."""
    value = row.get(column)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
        raise ValueError(
            f"column {column!r} of the training data must hold text or a number in every row; got {value!r} in the row "
            f"of the prompt {str(row.get('prompt'))[:80]!r}. Name another by exploration.id_key or "
            "exploration.answer_key"
        )
    return str(value)


def _prompt_digest(prompt: Any) -> str:
    """A stable id of a question that has none: the same for the same text or messages."""
    return hashlib.blake2b(json.dumps(prompt, sort_keys=True).encode(), digest_size=16).hexdigest()
