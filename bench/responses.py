"""Responses of a pretrained model as inputs of a loss: its hidden states, its head, and the tokens that top-p kept.

Random hidden states give random logits, and losses that skip small probabilities are then shown at their worst or
best. These are the logits that training meets.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

QUESTIONS = (
    "What is 17 * 6? Explain each step.",
    "Why is the sky blue?",
    "Write a short poem about a river.",
    "A train leaves at 9:40 and takes 85 minutes. When does it arrive?",
    "Write a Python function that reverses a list.",
    "Name three causes of the French Revolution.",
    "Solve x + 5 = 12.",
    "How do I cook rice?",
)


@dataclass(frozen=True)
class Source:
    """A model, and the questions that it answers in turn."""

    folder: Path
    questions: tuple[str, ...] = QUESTIONS


PRETRAINED = Source(Path("models/smollm2-135m-instruct"))  # `make smollm2` makes it


@dataclass(frozen=True)
class Responses:
    """S responses in one packed row of N tokens.

    Attributes:
        lengths_S: tokens of each response.
        hidden: (N, H), divided by the temperature: its products with the weight are the logits that were sampled from.
        weight: (V, H).
        labels_N: the sampled tokens.
        kept_NK: the label, the other tokens that top-p kept, and the label again as padding; None with top_p = 1.
    """

    lengths_S: Tensor
    hidden: Tensor
    weight: Tensor
    labels_N: Tensor
    kept_NK: Tensor | None


@torch.no_grad()
def sample_responses(
    source: Source, sequences: int, length: int, temperature: float, top_p: float, device: torch.device, seed: int
) -> Responses:
    """Sample responses of at most `length` tokens."""
    from outcome_rl.grpo.config.schema import ModelConfig, RolloutConfig
    from outcome_rl.grpo.model.policy import Policy
    from outcome_rl.grpo.rollout.decode_loop import decode

    policy = Policy.load(ModelConfig(path=str(source.folder), device="cuda" if device.type == "cuda" else "cpu"))
    prompts = [
        policy.tokenizer.apply_chat_template(
            [{"role": "user", "content": source.questions[index % len(source.questions)]}],
            add_generation_prompt=True,
            return_dict=True,
        )["input_ids"]
        for index in range(sequences)
    ]
    sampling = RolloutConfig(temperature=temperature, top_p=top_p)
    seeds = range(seed * sequences, (seed + 1) * sequences)
    drawn = decode(policy, prompts, seeds, sampling, length)
    hidden, kept = [], []
    for prompt, ids, _, _, supports in drawn:
        read = torch.tensor([[*prompt, *ids[:-1]]], device=device)
        hidden.append(policy.hidden(read, torch.ones_like(read))[0, len(prompt) - 1 :])
        kept += [[token, *(one for one in s if one != token)] for token, s in zip(ids, supports or (), strict=False)]
    longest = max(map(len, kept), default=0)
    return Responses(
        lengths_S=torch.tensor([len(one.token_ids) for one in drawn]),
        hidden=torch.cat(hidden) / temperature,
        weight=policy.head.weight.detach(),
        labels_N=torch.tensor([token for one in drawn for token in one.token_ids], device=device),
        kept_NK=torch.tensor([s + s[:1] * (longest - len(s)) for s in kept], device=device) if kept else None,
    )
