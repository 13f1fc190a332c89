"""Interface of rollout engines: prompts in, sampled responses out; the choice of one, and its use by several processes.

The transformers engine samples with the policy that is being trained, in its process. An engine with weights of its own
receives them by `update_weights` after every step.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from functools import cache
from typing import Protocol, cast

from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.schema import SamplingConfig, TrainConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.types import Fetch, Prompts, Rollout


class RolloutEngine(Protocol):
    """Anything that samples responses."""

    def generate(self, prompts: Prompts, sampling: SamplingConfig, max_tokens: int, seed: int) -> list[Rollout]:
        """Sample `sampling.n` responses of at most `max_tokens` tokens to each prompt, the same for the same seed.

        Returns:
            The n responses to each prompt side by side, in the order of the prompts.

        Raises:
            EngineDied: the process that samples is gone.
        """
        ...

    def update_weights(self, policy: Policy) -> None:
        """Sample from these weights from now on; if the policy is sharded, all processes must call it.

        An engine may read them as late as its next `generate`.
        """
        ...


class OverlappingEngine(RolloutEngine, Protocol):
    """An engine that samples in processes of its own, so that the policy can be updated meanwhile."""

    def start(self, prompts: Prompts, sampling: SamplingConfig, max_tokens: int, seed: int) -> Fetch:
        """Begin to sample what `generate` samples, with the weights as they are now.

        First waits for responses that were begun before and not fetched.

        Returns:
            A function that waits for the responses; its second call returns them again.

        Raises:
            EngineDied: the process that samples is gone, now or in the function returned.
        """
        ...


def choose_engine(config: TrainConfig) -> Callable[[Policy], AbstractContextManager[RolloutEngine]]:
    """Return the function that opens the engine `rollout.engine` on a policy; close it after the last rollout.

    Raises:
        ValueError: the engine cannot run here.
    """
    if config.rollout.engine == "vllm":
        from outcome_rl.grpo.rollout.vllm_engine import VllmEngine, check_vllm

        if config.rollout.keeps_support:
            raise ValueError(
                f"rollout.engine=vllm cannot train with rollout.top_p={config.rollout.top_p} and rollout.top_k="
                f"{config.rollout.top_k}: the loss needs the tokens that they kept, which only the engine transformers "
                "returns. Use 1 and -1, and a lower rollout.temperature, or rollout.engine=transformers"
            )
        check_vllm()
        if config.rollout.servers:
            from outcome_rl.grpo.rollout.vllm_servers import ServersEngine

            return lambda policy: closing(ServersEngine(policy, config))
        return lambda policy: closing(VllmEngine(policy, config))
    from outcome_rl.grpo.rollout.transformers_engine import TransformersEngine

    return lambda policy: nullcontext(TransformersEngine(policy, config.rollout.micro_batch_size))


class DataParallelEngine:
    """The engine of this process as one of several that divide the prompts; all processes get all responses."""

    def __init__(self, engine: RolloutEngine) -> None:
        self.engine = engine

    def update_weights(self, policy: Policy) -> None:
        self.engine.update_weights(policy)

    def generate(self, prompts: Prompts, sampling: SamplingConfig, max_tokens: int, seed: int) -> list[Rollout]:
        """Sample the responses in all processes; see `RolloutEngine`. Collective."""
        return self._divide(
            prompts, sampling.n, lambda own: lambda: self.engine.generate(own, sampling, max_tokens, seed)
        )()

    def start(self, prompts: Prompts, sampling: SamplingConfig, max_tokens: int, seed: int) -> Fetch:
        """Begin in all processes; see `OverlappingEngine`. Collective, and so is the function returned."""
        engine = cast(OverlappingEngine, self.engine)
        begun: list[Fetch] = []

        def begin(own: Prompts) -> Fetch:
            # If it fails in one process, it fails in all.
            distributed.all_gather_object(lambda: begun.append(engine.start(own, sampling, max_tokens, seed)))
            return begun[0]

        return self._divide(prompts, sampling.n, begin)

    def _divide(self, prompts: Prompts, n: int, begin: Callable[[Prompts], Fetch]) -> Fetch:
        """Begin to sample the prompts of this process, and return the function that gathers those of all."""
        # Copies of a prompt stay in one process: the seeds of a prompt depend on how often it occurred before.
        copies: dict[tuple[int, ...], list[int]] = {}
        for position, prompt in enumerate(prompts):
            copies.setdefault(tuple(prompt), []).append(position)
        own = [position for positions in distributed.contiguous_shard(list(copies.values())) for position in positions]
        # A process without prompts samples too: the engine may wait for all processes to gather the weights.
        fetch = begin([prompts[position] for position in own] or prompts[:1])

        def sample() -> dict[int, list[Rollout]]:
            rollouts = fetch()
            return {position: rollouts[i * n : (i + 1) * n] for i, position in enumerate(own)}

        def gather() -> list[Rollout]:
            by_position: dict[int, list[Rollout]] = {}
            for part in distributed.all_gather_object(sample):
                by_position |= part
            return [rollout for position in range(len(prompts)) for rollout in by_position[position]]

        return cache(gather)
