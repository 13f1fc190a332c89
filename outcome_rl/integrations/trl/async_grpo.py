"""Exploration in TRL's asynchronous GRPO, by a mixin for the loop that scores its groups.

    # exploring.py, a module that can be imported: TRL starts the loop in its own process
    from trl.experimental.async_grpo.async_rollout_worker import AsyncRolloutWorker, _AsyncRolloutLoop
    from outcome_rl.integrations.trl.async_grpo import ExplorationMixin

    class ExploringLoop(ExplorationMixin, _AsyncRolloutLoop):
        exploration = {"adv_estimator": "maxrl", "bonus": "batch", "coef": 0.2}

    AsyncRolloutWorker._loop_cls = ExploringLoop  # before AsyncGRPOTrainer is created

TRL takes one advantage per conversation, so answer tokens cannot be masked.
"""

import asyncio
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, cast

from outcome_rl.exploration.explorer import Explorer
from outcome_rl.exploration.scored import Scored
from outcome_rl.files.rows import id_source
from outcome_rl.integrations.adapter import explorer_without_mask, golds_of_all, score
from outcome_rl.integrations.trl.columns import Columns
from outcome_rl.outcomes.batch import Batch


class ExplorationMixin:
    """GRPO's advantages plus exploration bonuses, in place of the advantages of TRL's `_AsyncRolloutLoop`.

    Attributes:
        exploration: fields of `ExplorationConfig` except `answer_mask_mode`.
        id_key: column of the data that holds the stable id of a question; empty takes the hash of its prompt.
        answer_key: column of gold answers; where no row has one, a positive reward is a correct response.
    """

    exploration: ClassVar[Mapping[str, Any]] = {}
    id_key: ClassVar[str] = ""
    answer_key: ClassVar[str] = "answer"

    @cached_property
    def explorer(self) -> Explorer:
        """The counts, in the process of the loop, where they end with it."""
        return explorer_without_mask("TRL's asynchronous GRPO", **self.exploration)

    async def _score_group(self, group: Any) -> list[Any]:
        """Score and count the conversations of a group; one without a reward keeps TRL's advantage 0, uncounted.

        Raises:
            ValueError: some rows have a gold answer and others none, a row lacks its id, or a group has several.
        """
        samples: list[Any] = await cast(Any, super())._score_group(group)
        rows = [number for number, sequences in enumerate(group.completions_sequences) for _ in sequences]
        rewards = {row: sample.metrics["reward"] for row, sample in zip(rows, samples, strict=True)}
        chosen = [row for row, reward in rewards.items() if not math.isnan(reward)]
        if not chosen:
            return samples
        # In a thread, because rollouts share the event loop.
        scored = await asyncio.to_thread(self._scored, group, chosen, [rewards[row] for row in chosen])
        advantages = dict(zip(chosen, (scored.advantages + scored.bonuses).tolist(), strict=True))
        for row, sample in zip(rows, samples, strict=True):
            if row in advantages:
                sample.advantage = advantages[row]
                sample.metrics.update(scored.metrics)
        return samples

    def _scored(self, group: Any, chosen: list[int], rewards: list[float]) -> Scored:
        examples = [
            {name: column[row] for name, column in group.reward_kwargs.items()} | {"prompt": group.prompts[row]}
            for row in chosen
        ]
        origin = id_source(self.id_key, within_source="data_source" in examples[0])
        columns = Columns(self.id_key or None, self.answer_key, origin)
        golds, prompts = [one.get(self.answer_key) for one in examples], [one["prompt"] for one in examples]
        ids = [columns.id(example) for example in examples]
        if len({*ids}) > 1:
            raise ValueError(
                "id_key must name a column of stable ids, because the environment makes several prompts of a question; "
                f"got {len({*ids})} in a group of {len(ids)}"
            )
        batch = Batch(
            ids,
            [_reply(group.completions[row]) for row in chosen],
            golds_of_all(self.explorer, golds, self.answer_key, prompts),
            rewards,
            rows=examples,
        )
        return score(self.explorer, batch, id_source=columns.id_source)


def _reply(messages: list[Mapping[str, Any]]) -> str:
    """Return the text of the last message that the policy wrote."""
    texts = [str(one.get("content") or "") for one in messages if one.get("role") == "assistant"]
    return texts[-1] if texts else ""
