"""Exploration in ms-swift: a mixin for its GRPO trainer, in a file for `--external_plugins`.

    # exploring.py
    from swift.rlhf_trainers import GRPOTrainer
    from swift.trainers import TrainerFactory
    from outcome_rl.integrations.ms_swift import ExplorationMixin

    class ExploringTrainer(ExplorationMixin, GRPOTrainer):
        exploration = {"adv_estimator": "maxrl", "bonus": "batch", "coef": 0.2}

    TrainerFactory.TRAINER_MAPPING["grpo"] = "exploring.ExploringTrainer"

ms-swift's `_compute_advantages` returns one advantage per response, so answer tokens cannot be masked.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, cast

import torch.distributed as dist
from torch import Tensor

from outcome_rl.exploration.explorer import Explorer
from outcome_rl.files.rows import id_source
from outcome_rl.integrations.adapter import explorer_without_mask, golds_of_all, score, stable_id
from outcome_rl.outcomes.batch import Batch
from outcome_rl_kernels.advantages.groups import Scale

_SCALES: dict[str, Scale] = {"group": "std", "none": "none"}


class ExplorationMixin:
    """GRPO's advantages plus exploration bonuses, in place of the advantages of `swift.rlhf_trainers.GRPOTrainer`.

    Attributes:
        exploration: fields of `ExplorationConfig` except `answer_mask_mode`.
        id_key: column of the data that holds the stable id of a question; empty takes the hash of its messages.
        answer_key: column of gold answers; where no row has one, a positive reward is a correct response.
    """

    exploration: ClassVar[Mapping[str, Any]] = {}
    id_key: ClassVar[str] = ""
    answer_key: ClassVar[str] = "solution"

    @cached_property
    def explorer(self) -> Explorer:
        """The counts of the run: `save(folder)` keeps them, `trainer.explorer = Explorer.load(folder)` continues."""
        group = dist.group.WORLD if dist.is_initialized() else None
        return explorer_without_mask("ms-swift", process_group=group, **self.exploration)

    def _compute_advantages(
        self, samples: Sequence[Any], rewards_per_func: Tensor, batch_encoded_inputs: Sequence[Mapping[str, Any]]
    ) -> Tensor:
        """Score and count the responses of all processes; an evaluation keeps ms-swift's advantages.

        Args:
            samples: `GRPOSample`s of this process.
            rewards_per_func: (N, functions) of all processes, one after another; NaN where a function gave none.
            batch_encoded_inputs: for ms-swift, which logs the rewards.

        Returns:
            (N,) advantages of all processes.

        Raises:
            ValueError: a setting would change the advantages, or requests have several samples; some rows have a gold
                answer and others none.
        """
        trainer, theirs = cast(Any, self), cast(Any, super())
        advantages: Tensor = theirs._compute_advantages(samples, rewards_per_func, batch_encoded_inputs)
        if not trainer.model.training:
            return advantages
        obstacles = {
            f"advantage_estimator={trainer.advantage_estimator}": trainer.advantage_estimator != "grpo",
            f"scale_rewards={trainer.scale_rewards}": trainer.scale_rewards not in _SCALES,
            "kl_in_reward=true": trainer.kl_in_reward,
            "a scheduler that makes several samples of a request": trainer.dynamic_num_samples,
        }
        if given := [name for name, applies in obstacles.items() if applies]:
            raise ValueError(
                f"ExplorationMixin replaces GRPO's advantages, which {given[0]} would change; use "
                "--advantage_estimator grpo --scale_rewards group (or none) without it"
            )
        rewards_N = (rewards_per_func * trainer.reward_weights).nansum(dim=1)
        start = len(samples) * (dist.get_rank() if dist.is_initialized() else 0)
        golds, prompts = [one.extra.get(self.answer_key) for one in samples], [one.messages[:-1] for one in samples]
        batch = Batch(
            [self._question_id(one) for one in samples],
            [self._response(one) for one in samples],
            golds_of_all(self.explorer, golds, self.answer_key, prompts),
            rewards_N[start : start + len(samples)],
            group_ids=[row // trainer.num_generations for row in range(start, start + len(samples))],
            rows=[one.extra for one in samples],
        )
        self.explorer.length_setting = "max_completion_length"
        origin = id_source(self.id_key, within_source="data_source" in samples[0].extra)
        scored = score(self.explorer, batch, id_source=origin, scale=_SCALES[trainer.scale_rewards])
        for name, value in scored.metrics.items():
            trainer._metrics["train"][name].append(value)
        return (scored.advantages + scored.bonuses).to(advantages)

    def _question_id(self, sample: Any) -> str:
        prompt, has_media = sample.messages[:-1], bool(sample.images or sample.videos or sample.audios)
        return stable_id(self.id_key, sample.extra, prompt, place="the columns of every row", has_media=has_media)

    def _response(self, sample: Any) -> str:
        """Return the text of the last message, which may hold token ids in its place."""
        content, trainer = sample.messages[-1]["content"], cast(Any, self)
        if isinstance(content, str):
            return content
        ids = content["token_ids"] if isinstance(content, Mapping) else content
        return str(trainer.processing_class.decode(ids, skip_special_tokens=True))
