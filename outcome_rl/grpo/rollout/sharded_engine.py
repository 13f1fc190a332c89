"""Data-parallel rollouts: each process samples its share of the prompts, and all processes get all responses."""

from collections.abc import Sequence

from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.schema import SamplingConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.engine import RolloutEngine
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
        # Copies of a prompt stay in one process: the seeds of a prompt depend on how often it occurred before.
        copies: dict[tuple[int, ...], list[int]] = {}
        for position, prompt in enumerate(prompts):
            copies.setdefault(tuple(prompt), []).append(position)
        own = [position for positions in distributed.contiguous_shard(list(copies.values())) for position in positions]

        def sample() -> dict[int, list[Rollout]]:
            # A process without prompts samples too: the engine may wait for all processes to gather the weights.
            mine = [prompts[position] for position in own] or prompts[:1]
            rollouts = self.engine.generate(mine, sampling, max_tokens, seed)
            n = sampling.n
            return {position: rollouts[i * n : (i + 1) * n] for i, position in enumerate(own)}

        by_position: dict[int, list[Rollout]] = {}
        for part in distributed.all_gather_object(sample):
            by_position |= part
        return [rollout for position in range(len(prompts)) for rollout in by_position[position]]
