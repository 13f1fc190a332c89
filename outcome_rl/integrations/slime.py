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

from outcome_rl.integrations.adapter import explorer_without_mask, golds_of_all, score
from outcome_rl.outcomes.batch import Batch
from outcome_rl.outcomes.keys import question_id
from outcome_rl.rows import filled_text, id_source
from outcome_rl_kernels.advantages.groups import Scale

_ESTIMATORS = ("grpo", "gspo", "cispo")  # which take the processed reward as the advantage of every token


class ExplorationRewards:
    """Normalised rewards plus exploration bonuses, as slime's interface for processing rewards expects them.

    Args:
        id_key: entry of a sample's metadata that holds the stable id of its question; empty takes the hash of the
            prompt.
        **settings: fields of `ExplorationConfig` except `answer_mask_mode`.

    Attributes:
        explorer: the `Explorer`. To keep the counts, call its `save(folder)`; to continue, replace it by
            `Explorer.load(folder)`.
        metrics: of the last call.

    Raises:
        TypeError, ValueError: a setting is unknown, of the wrong type or out of range.
    """

    def __init__(self, *, id_key: str = "", **settings: Any) -> None:
        self.id_key = id_key
        self.explorer = explorer_without_mask("slime", **settings)
        self.metrics: dict[str, float] = {}

    def __call__(self, args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
        """Process the rewards of a rollout, and count its outcomes.

        Of the samples of one `rollout_id` the last is scored, and the others get its advantage. Aborted samples, and
        those that slime removes from the loss, are neither scored nor counted, and get 0.

        Args:
            args: slime's arguments; `grpo_std_normalization` says whether to divide by the standard deviation.
            samples: slime's `Sample`s, with `group_index`, `prompt`, `response`, `label`, `metadata`, and a reward that
                `get_reward_value(args)` reads.

        Returns:
            `(raw rewards, advantages)`, one number per sample each.

        Raises:
            ValueError: the advantage estimator or a setting would change the advantages; some samples have a label and
                others none, or one is no text or number; a sample has no entry `id_key` in its metadata, or images
                without it.
        """
        if args.advantage_estimator not in _ESTIMATORS or args.normalize_advantages:
            raise ValueError(
                f"--advantage-estimator must be one of {', '.join(_ESTIMATORS)}, without --normalize-advantages, which "
                f"would normalise the bonus; got {args.advantage_estimator} and {args.normalize_advantages}"
            )
        if not getattr(args, "rewards_normalization", True):
            raise ValueError(
                "--disable-rewards-normalization makes rewards the advantages, without a baseline; leave it out or use "
                "--disable-grpo-std-normalization"
            )
        self.explorer.length_setting = "--rollout-max-response-len"
        rollouts = {  # of the samples that count
            i: _rollout(one, i)
            for i, one in enumerate(samples)
            if not one.remove_sample and one.status.name != "ABORTED"
        }
        if missing := next((one for i, one in enumerate(samples) if i in rollouts and one.reward is None), None):
            raise ValueError(
                f"every sample that is not aborted must have a reward; one of the prompt {str(missing.prompt)[:80]!r} "
                "has None. Set remove_sample, or give it one"
            )
        raw_rewards = [0.0 if one.reward is None else float(one.get_reward_value(args)) for one in samples]
        advantages = [0.0] * len(samples)
        if not rollouts:
            return raw_rewards, advantages
        last = {rollout: i for i, rollout in rollouts.items()}
        chosen = [samples[i] for i in last.values()]
        is_read = not self.explorer.config.is_correct  # else a label may be anything
        golds = [_gold(one) if is_read and one.label is not None else None for one in chosen]
        batch = Batch(
            [self._question_id(sample) for sample in chosen],
            [sample.response for sample in chosen],
            golds_of_all(self.explorer, golds, "label"),
            [raw_rewards[i] for i in last.values()],
            group_ids=[sample.group_index for sample in chosen],
            rows=[{**(sample.metadata or {}), "prompt": sample.prompt, "label": sample.label} for sample in chosen],
        )
        origin = id_source(self.id_key, within_source=False)
        scale: Scale = "std" if args.grpo_std_normalization else "none"
        scored = score(self.explorer, batch, id_source=origin, scale=scale)
        self.metrics = scored.metrics
        of_rollout = dict(zip(last, (scored.advantages + scored.bonuses).tolist(), strict=True))
        for i, rollout in rollouts.items():
            advantages[i] = of_rollout[rollout]
        return raw_rewards, advantages

    def _question_id(self, sample: Any) -> str:
        if not self.id_key:
            if sample.multimodal_inputs:
                raise ValueError(
                    "id_key must name an entry of the metadata that holds stable ids, since with images a question is "
                    "more than its prompt"
                )
            return question_id(sample.prompt)
        if self.id_key not in (sample.metadata or {}):
            raise ValueError(
                f"id_key={self.id_key!r} must be in the metadata of every sample; one has "
                f"{sorted(sample.metadata or {})}"
            )
        return str(sample.metadata[self.id_key])


def _rollout(sample: Any, index: int) -> tuple[Any, ...]:
    """Return what the samples of one rollout have in common; a sample without a `rollout_id` is a rollout."""
    return (sample.group_index, index, None) if sample.rollout_id is None else (sample.group_index, sample.rollout_id)


def _gold(sample: Any) -> str:
    return filled_text(sample.label, "label", "gold answer", f"sample of the prompt {str(sample.prompt)[:80]!r}")
