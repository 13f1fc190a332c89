"""Data-parallel rollouts: each process samples its share of the prompts, and all processes get all responses."""

from collections.abc import Sequence

import torch

from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.schema import SamplingConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.engine import RolloutEngine, Rollouts


class DataParallelEngine:
    """The engine of this process as one of several that divide the prompts."""

    def __init__(self, engine: RolloutEngine, device: torch.device) -> None:
        self.engine = engine
        self._device = device

    def update_weights(self, policy: Policy) -> None:
        self.engine.update_weights(policy)

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingConfig, max_tokens: int, seed: int
    ) -> Rollouts:
        # A prompt that occurs twice stays in one process: its seeds depend on how often it was there.
        places: dict[tuple[int, ...], list[int]] = {}
        for place, prompt in enumerate(prompts):
            places.setdefault(tuple(prompt), []).append(place)
        mine = [prompts[place] for copies in distributed.contiguous_shard(list(places.values())) for place in copies]

        def sample() -> Rollouts | None:
            # Without a prompt of its own too: the engine may wait for all processes to gather the weights.
            rollouts = self.engine.generate(mine or prompts[:1], sampling, max_tokens, seed)
            return rollouts.to(torch.device("cpu")) if mine else None

        parts = distributed.all_gather_object(sample)
        rollouts = Rollouts.join([part for part in parts if part is not None]).to(self._device)
        order = [place for copies in places.values() for place in copies]
        rows = sorted(range(len(order)), key=order.__getitem__)
        return rollouts.take([row * sampling.n + sample for row in rows for sample in range(sampling.n)])
