"""Rollout engines: prompts in, sampled responses out.

The seam is `RolloutEngine`. The transformers engine samples with the policy that is being trained, in its process; an
engine with weights of its own receives them by `update_weights` after every step.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from outcome_rl.driver.config import SamplingConfig
from outcome_rl.driver.policy import Policy
from outcome_rl.outcomes.spans import decode_completion


class Rollouts(NamedTuple):
    """N = prompts x n responses; the n of one prompt lie side by side.

    Prompts are padded on the left to P tokens and responses on the right to T, so that their concatenation is one
    sequence without a gap.
    """

    prompt_ids: Tensor  # (N, P) int64
    prompt_mask: Tensor  # (N, P) bool
    completion_ids: Tensor  # (N, T) int64
    completion_mask: Tensor  # (N, T) bool, the end token included
    texts: list[str]

    @property
    def num_tokens(self) -> int:
        return int(self.completion_mask.sum())

    def rows(self, chosen: slice) -> "Rollouts":
        """Some of the responses, without the padding that only the others needed."""
        prompt_width = max(int(self.prompt_mask[chosen].sum(dim=1).max()), 1)
        width = max(int(self.completion_mask[chosen].sum(dim=1).max()), 1)
        return Rollouts(
            prompt_ids=self.prompt_ids[chosen, -prompt_width:],
            prompt_mask=self.prompt_mask[chosen, -prompt_width:],
            completion_ids=self.completion_ids[chosen, :width],
            completion_mask=self.completion_mask[chosen, :width],
            texts=self.texts[chosen],
        )


class RolloutEngine(Protocol):
    """Anything that samples responses."""

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingConfig, max_tokens: int, seed: int
    ) -> Rollouts:
        """`sampling.n` responses of at most `max_tokens` tokens to each prompt, the same for the same seed."""
        ...

    def update_weights(self, policy: Policy) -> None:
        """Sample from these weights from now on."""
        ...


class TransformersEngine:
    """Samples with `model.generate` of the policy itself."""

    def __init__(self, policy: Policy, micro_batch_size: int) -> None:
        self.policy = policy
        self.micro_batch_size = micro_batch_size

    def update_weights(self, policy: Policy) -> None:
        self.policy = policy

    @torch.no_grad()
    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingConfig, max_tokens: int, seed: int
    ) -> Rollouts:
        repeated = [prompt for prompt in prompts for _ in range(sampling.n)]
        prompt_ids, prompt_mask = self._pad_left(repeated)
        pad, end = self._special_ids()
        pieces = []
        devices = [self.policy.device] if self.policy.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):  # the seed decides the samples and nothing else
            torch.manual_seed(seed)
            for start in range(0, len(repeated), self.micro_batch_size):
                rows = slice(start, start + self.micro_batch_size)
                pieces.append(self._generate_rows(prompt_ids[rows], prompt_mask[rows], sampling, max_tokens))
        width = max(piece.shape[1] for piece in pieces)
        completion_ids = torch.cat(
            [torch.nn.functional.pad(piece, (0, width - piece.shape[1]), value=pad) for piece in pieces]
        )
        # Everything after the first end token is padding, also where the pad token is an end token.
        ended = torch.isin(completion_ids, torch.tensor(end, device=completion_ids.device))
        completion_mask = ended.cumsum(dim=1) - ended.long() == 0
        lengths = completion_mask.sum(dim=1).tolist()
        texts = [
            decode_completion(self.policy.tokenizer, ids[:length])
            for ids, length in zip(completion_ids.tolist(), lengths, strict=True)
        ]
        return Rollouts(prompt_ids, prompt_mask, completion_ids, completion_mask, texts)

    def _special_ids(self) -> tuple[int, list[int]]:
        """The pad token, and every token that ends a response."""
        tokenizer = self.policy.tokenizer
        end = self.policy.model.generation_config.eos_token_id
        ends = [] if end is None else [end] if isinstance(end, int) else list(end)
        return tokenizer.pad_token_id, sorted({*ends, tokenizer.eos_token_id})

    def _pad_left(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        width = max(map(len, prompts))
        pad, _ = self._special_ids()
        ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts])
        lengths = torch.tensor([[len(prompt)] for prompt in prompts])
        mask = torch.arange(width)[None] >= width - lengths
        return ids.to(self.policy.device), mask.to(self.policy.device)

    def _generate_rows(
        self, prompt_ids: Tensor, prompt_mask: Tensor, sampling: SamplingConfig, max_tokens: int
    ) -> Tensor:
        from transformers import GenerationConfig

        pad, end = self._special_ids()
        settings: dict[str, Any] = {
            "do_sample": True,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k if sampling.top_k > 0 else 0,
            "max_new_tokens": max_tokens,
            "pad_token_id": pad,
            "eos_token_id": end,
        }
        with self.policy.precision(), _only_setting(self.policy.model, GenerationConfig(**settings)):
            sequences: Tensor = self.policy.model.generate(input_ids=prompt_ids, attention_mask=prompt_mask.long())
        return sequences[:, prompt_ids.shape[1] :]


@contextmanager
def _only_setting(model: Any, config: Any) -> Iterator[None]:
    """Sample by `config` alone: `generate` fills what a configuration leaves open from the model's own, whose
    repetition penalty or the like the loss would know nothing of."""
    own = model.generation_config
    model.generation_config = config
    try:
        yield
    finally:
        model.generation_config = own
