"""Prompts for vLLM, and checks of its samples."""

from collections.abc import Sequence

import torch

from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.types import Rollout

TEXTS = ("D07 17 @ 5 # 3 =>", "D01", "D12 39 ^ 9 ! 3 =>")
N = 32


def largest_difference(policy: Policy, rollouts: list[Rollout], temperature: float) -> float:
    """Compare the engine's log-probabilities with those of transformers, in float32."""
    found = 0.0
    for rollout in rollouts:
        assert rollout.logps is not None
        prompt, response = rollout.prompt_ids, rollout.token_ids
        with torch.no_grad():
            logits = policy.model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
        logps = torch.log_softmax(logits / temperature, dim=-1).gather(1, torch.tensor(response)[:, None])[:, 0]
        found = max(found, (logps - torch.tensor(rollout.logps)).abs().max().item())
    return found


def texts(rollouts: Sequence[Rollout]) -> list[str]:
    return [rollout.text for rollout in rollouts]
