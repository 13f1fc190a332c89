"""Exploration in slime: a function for `--custom-reward-post-process-path`.

slime loads a function by its path, so a user's file holds one object, and the launch command names it:

    # my_exploration.py
    from outcome_rl.integrations.slime import ExplorationRewards
    post_process = ExplorationRewards(bonus="batch", coef=0.2)

    --advantage-estimator grpo --custom-reward-post-process-path my_exploration.post_process

slime's GRPO uses the processed reward of a response as the advantage of all its tokens, so the bonus arrives unchanged.
Masking the answer's tokens would need one advantage per token, which this interface cannot pass.
"""

from collections.abc import Sequence
from typing import Any

from outcome_rl.integrations.adapter import explorer_without_mask, score
from outcome_rl.outcomes.batch import Batch
from outcome_rl.outcomes.keys import question_id
from outcome_rl.rows import id_source
from outcome_rl_kernels.advantages.groups import Scale


class ExplorationRewards:
    """Normalised rewards plus exploration bonuses, as slime's interface for processing rewards expects them.

    Args:
        id_key: entry of a sample's metadata that holds the stable id of its question; empty takes the hash of the
            prompt.
        **settings: fields of `ExplorationConfig` except `answer_mask_mode`.

    Attributes:
        explorer: the `Explorer`. To keep the counts, call its `save(folder)`; to continue, replace it by
            `Explorer.load(folder)`.

    Raises:
        TypeError, ValueError: a setting is unknown, of the wrong type or out of range.
    """

    def __init__(self, *, id_key: str = "", **settings: Any) -> None:
        self.id_key = id_key
        self.explorer = explorer_without_mask("slime", **settings)

    def __call__(self, args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
        """Process the rewards of a rollout, and count its outcomes.

        Args:
            args: slime's arguments; `grpo_std_normalization` says whether to divide by the standard deviation.
            samples: slime's `Sample`s, with `group_index`, `prompt`, `response`, `label`, `metadata`, and a reward that
                `get_reward_value(args)` reads.

        Returns:
            `(raw rewards, advantages)`, one number per sample each.

        Raises:
            ValueError: a sample has no label although outcomes are final answers, or no entry `id_key` in its metadata.
        """
        self.explorer.length_setting = "--rollout-max-response-len"
        raw_rewards = [float(sample.get_reward_value(args)) for sample in samples]
        # Where outcomes do not need labels, the rewards can tell which responses are correct.
        unlabelled = not self.explorer.matcher.needs_gold and any(sample.label is None for sample in samples)
        batch = Batch(
            [self._question_id(sample) for sample in samples],
            [sample.response for sample in samples],
            None if unlabelled else [_gold(sample) for sample in samples],
            raw_rewards,
            group_ids=[sample.group_index for sample in samples],
            rows=[{**sample.metadata, "prompt": sample.prompt, "label": sample.label} for sample in samples],
        )
        origin = id_source(self.id_key, within_source=False)
        scale: Scale = "std" if args.grpo_std_normalization else "none"
        scored = score(self.explorer, batch, id_source=origin, scale=scale)
        return raw_rewards, (scored.advantages + scored.bonuses).tolist()

    def _question_id(self, sample: Any) -> str:
        if not self.id_key:
            return question_id(sample.prompt)
        if self.id_key not in sample.metadata:
            raise ValueError(
                f"id_key={self.id_key!r} must be in the metadata of every sample; one has {sorted(sample.metadata)}"
            )
        return str(sample.metadata[self.id_key])


def _gold(sample: Any) -> str:
    if sample.label is None:
        raise ValueError(
            "every sample must have a label, its gold answer, and one has none; name its column with --label-key"
        )
    return str(sample.label)
