"""Exploration in slime: a function for `--custom-reward-post-process-path`.

slime loads a function by its path, so a file of the user's holds one object, and the launch command names it:

    # my_exploration.py
    from outcome_rl.integrations.slime import ExplorationRewards
    post_process = ExplorationRewards(bonus="ucb_con", coef=0.2)

    --advantage-estimator grpo --custom-reward-post-process-path my_exploration.post_process

slime's GRPO gives every token of a response that response's processed reward as its advantage, so the bonus arrives as
it should; a mask on the answer's tokens would need an advantage a token, which this interface has no room for.
"""

from collections.abc import Sequence
from typing import Any

import torch

from outcome_rl.integrations.exploration import OutcomeExploration, OutcomeExplorationConfig


class ExplorationRewards:
    """Normalised rewards plus exploration bonuses, by slime's interface for processing rewards.

    Args:
        settings: fields of `OutcomeExplorationConfig` but `answer_mask_mode`; `id_key` names an entry of a sample's
            metadata, and where it is empty a question's id is its prompt.

    Attributes:
        exploration: counts, outcome classes and solved questions, with `save(folder)` and `load(folder)`.

    Raises:
        TypeError, ValueError: a setting is unknown, of the wrong type or out of range.
    """

    def __init__(self, **settings: Any) -> None:
        if "answer_mask_mode" in settings:
            raise ValueError(
                "answer_mask_mode cannot be had here: slime takes one processed reward a response. Leave it out"
            )
        self.exploration = OutcomeExploration(OutcomeExplorationConfig.from_mapping(settings, "ExplorationRewards"))

    def __call__(self, args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
        """Process the rewards of a rollout, and count its outcomes.

        Args:
            args: slime's; `grpo_std_normalization` says whether to divide by the standard deviation.
            samples: slime's `Sample`s, with `group_index`, `prompt`, `response`, `label`, `metadata`, and a reward that
                `get_reward_value(args)` reads.

        Returns:
            `(raw rewards, advantages)`, a number a sample each.

        Raises:
            ValueError: a sample has no label, or no such entry in its metadata.
        """
        raw_rewards = [float(sample.get_reward_value(args)) for sample in samples]
        scored = self.exploration.score(
            [self._question_id(sample) for sample in samples],
            [str(sample.group_index) for sample in samples],
            [sample.response for sample in samples],
            [_gold(sample) for sample in samples],
            torch.tensor(raw_rewards),
            scale="std" if args.grpo_std_normalization else "none",
        )
        return raw_rewards, (scored.advantages + scored.bonuses).tolist()

    def _question_id(self, sample: Any) -> str:
        key = self.exploration.config.id_key
        if not key:
            return str(sample.prompt)
        if key not in sample.metadata:
            raise ValueError(f"id_key={key!r} is not in a sample's metadata, which has {sorted(sample.metadata)}")
        return str(sample.metadata[key])


def _gold(sample: Any) -> str:
    if sample.label is None:
        raise ValueError("a sample has no label, which is the gold answer; name its column with --label-key")
    return str(sample.label)
