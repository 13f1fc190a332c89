"""Interface of rollout engines: prompts in, sampled responses out; and the choice of one.

The transformers engine samples with the policy that is being trained, in its process. An engine with weights of its own
receives them by `update_weights` after every step.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Protocol

from outcome_rl.grpo.config.schema import SamplingConfig, TrainConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.types import Rollout


class RolloutEngine(Protocol):
    """Anything that samples responses."""

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingConfig, max_tokens: int, seed: int
    ) -> list[Rollout]:
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

    def start(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingConfig, max_tokens: int, seed: int
    ) -> Callable[[], list[Rollout]]:
        """Begin to sample what `generate` samples, with the weights as they are now.

        Responses that were begun before and not fetched are waited for first.

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
