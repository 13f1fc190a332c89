"""Data-parallel rollouts: each process samples its share of the prompts, and all processes get all responses."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import cast

from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.schema import SamplingConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.engine import OverlappingEngine, RolloutEngine
from outcome_rl.grpo.types import Rollout


class DataParallelEngine:
    """The engine of this process as one of several that divide the prompts; `generate` is collective."""

    def __init__(self, engine: RolloutEngine) -> None:
        self.engine = engine

    def update_weights(self, policy: Policy) -> None:
        self.engine.update_weights(policy)

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingConfig, max_tokens: int, seed: int
    ) -> list[Rollout]:
        return self._share(
            prompts, sampling.n, lambda own: lambda: self.engine.generate(own, sampling, max_tokens, seed)
        )()

    def start(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingConfig, max_tokens: int, seed: int
    ) -> Callable[[], list[Rollout]]:
        """Begin in all processes; see `OverlappingEngine`. Collective, and so is the function returned."""
        engine = cast(OverlappingEngine, self.engine)
        begun: list[Callable[[], list[Rollout]]] = []

        def begin(own: Sequence[Sequence[int]]) -> Callable[[], list[Rollout]]:
            # If it fails in one process, it fails in all.
            distributed.all_gather_object(lambda: begun.append(engine.start(own, sampling, max_tokens, seed)))
            return begun[0]

        return self._share(prompts, sampling.n, begin)

    def _share(
        self,
        prompts: Sequence[Sequence[int]],
        n: int,
        begin: Callable[[Sequence[Sequence[int]]], Callable[[], list[Rollout]]],
    ) -> Callable[[], list[Rollout]]:
        """Begin to sample the prompts of this process, and return the function that gathers those of all."""
        # Copies of a prompt stay in one process: the seeds of a prompt depend on how often it occurred before.
        copies: dict[tuple[int, ...], list[int]] = {}
        for position, prompt in enumerate(prompts):
            copies.setdefault(tuple(prompt), []).append(position)
        own = [position for positions in distributed.contiguous_shard(list(copies.values())) for position in positions]
        # A process without prompts samples too: the engine may wait for all processes to gather the weights.
        finish = begin([prompts[position] for position in own] or prompts[:1])

        def sample() -> dict[int, list[Rollout]]:
            rollouts = finish()
            return {position: rollouts[i * n : (i + 1) * n] for i, position in enumerate(own)}

        def gather() -> list[Rollout]:
            by_position: dict[int, list[Rollout]] = {}
            for part in distributed.all_gather_object(sample):
                by_position |= part
            return [rollout for position in range(len(prompts)) for rollout in by_position[position]]

        return cache(gather)
