"""Rollout engine that samples with the policy that is being trained, in its process."""

from collections.abc import Sequence

from outcome_rl.grpo.config.schema import SamplingConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.decode_loop import decode
from outcome_rl.grpo.rollout.engine import Rollouts
from outcome_rl.grpo.rollout.sampling import sample_seeds


class TransformersEngine:
    """Samples with the policy itself."""

    def __init__(self, policy: Policy, micro_batch_size: int) -> None:
        self.policy = policy
        self.micro_batch_size = micro_batch_size

    def update_weights(self, policy: Policy) -> None:
        self.policy = policy

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingConfig, max_tokens: int, seed: int
    ) -> Rollouts:
        seeds = sample_seeds(prompts, sampling.n, seed)
        completions = []
        with self.policy.whole():
            for start in range(0, len(seeds), self.micro_batch_size):
                owners = [row // sampling.n for row in range(len(seeds))[start : start + self.micro_batch_size]]
                first, last = owners[0], owners[-1]
                completions += decode(
                    self.policy,
                    prompts[first : last + 1],
                    [owner - first for owner in owners],
                    seeds[start : start + self.micro_batch_size],
                    sampling,
                    max_tokens,
                )
        repeated = [prompt for prompt in prompts for _ in range(sampling.n)]
        return Rollouts.assemble(self.policy, repeated, completions)
