"""Settings and prompts for vLLM, and checks of its samples."""

from collections.abc import Sequence

import torch

from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.types import Rollout

TEXTS = ("D07 17 @ 5 # 3 =>", "D01", "D12 39 ^ 9 ! 3 =>")
N = 32
VLLM_SETTINGS = (
    "rollout.engine=vllm",
    "rollout.enforce_eager=true",
    "rollout.importance_cap=2",
    "model.device=cpu",
    "data.train_batch_size=8",
    "data.train_files=toy:train[:16]",
    "data.val_files=toy:validation[:8]",
    "data.test_files=toy:test[:8]",
    "rollout.n=8",
    "rollout.val_kwargs.n=4",
    "trainer.total_training_steps=8",
    "trainer.test_freq=3",
    "trainer.save_freq=2",
)


def largest_difference(policy: Policy, rollouts: list[Rollout], temperature: float) -> float:
    return float(differences(policy, rollouts, temperature).max())


def differences(policy: Policy, rollouts: list[Rollout], temperature: float) -> torch.Tensor:
    """Compare the engine's log-probabilities with those of transformers, token by token."""
    found = []
    for rollout in rollouts:
        assert rollout.logps is not None
        prompt, response = rollout.prompt_ids, rollout.token_ids
        with torch.no_grad():
            logits = policy.model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1].float()
        logps = torch.log_softmax(logits / temperature, dim=-1).gather(1, torch.tensor(response)[:, None])[:, 0]
        found.append((logps - torch.tensor(rollout.logps)).abs())
    return torch.cat(found)


def texts(rollouts: Sequence[Rollout]) -> list[str]:
    return [rollout.text for rollout in rollouts]
