"""An engine with a copy of the weights, as one in processes of its own has; runs name it by its import path."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, ClassVar

from outcome_rl.grpo.config.schema import SamplingConfig, TrainConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.engine import RolloutEngine
from outcome_rl.grpo.rollout.transformers_engine import TransformersEngine
from outcome_rl.grpo.types import EngineDied, Rollout

NAME = "copying_engine:CopyingEngine"


class CopyingEngine(RolloutEngine):
    """Samples with the weights as they were at `start`, and notes every call."""

    overlaps = True
    opened: ClassVar[list["CopyingEngine"]] = []
    lives: ClassVar[Iterator[int]] = iter(())  # of the engines opened next: the call of `start` that fails when fetched

    def __init__(self, policy: Policy, config: TrainConfig) -> None:
        self.policy, self.life = policy, next(self.lives, 0)
        self.calls: list[tuple[str, int]] = []
        self.opened.append(self)

    def update_weights(self, policy: Policy) -> None:
        self.policy = policy
        self.calls.append(("new weights", 0))

    def generate(self, *request: Any) -> list[Rollout]:
        self.calls.append(("generate", request[-1]))
        return self._sampled(*request)()

    def start(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingConfig, max_tokens: int, seed: int
    ) -> Callable[[], list[Rollout]]:
        self.calls.append(("start", seed))
        self.life -= 1
        finish, dies = self._sampled(prompts, sampling, max_tokens, seed), self.life == 0

        def fetch() -> list[Rollout]:
            if dies:
                raise EngineDied("the engine died")
            self.calls.append(("fetch", seed))
            return finish()

        return cache(fetch)

    def _sampled(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingConfig, max_tokens: int, seed: int
    ) -> Callable[[], list[Rollout]]:
        frozen = TransformersEngine(self.policy.frozen_copy(), 64)
        return lambda: [
            rollout._replace(logps=[-1.0] * len(rollout.token_ids))
            for rollout in frozen.generate(prompts, sampling, max_tokens, seed)
        ]
