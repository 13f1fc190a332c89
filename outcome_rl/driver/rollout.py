"""Rollout engines: prompts in, sampled responses out.

The seam is `RolloutEngine`, and `choose_engine` is where one is chosen. The transformers engine samples with the policy
that is being trained, in its process; an engine with weights of its own receives them by `update_weights` after every
step.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from outcome_rl.driver.config import SamplingConfig, TrainConfig
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
    # (N, T) float32, of the sampled tokens by the arithmetic of the engine that sampled them, at the temperature of
    # sampling; None where that arithmetic is the policy's own.
    logps: Tensor | None = None

    @classmethod
    def assemble(
        cls,
        policy: Policy,
        prompts: Sequence[Sequence[int]],
        completions: Sequence[Sequence[int]],
        logps: Sequence[Sequence[float]] | None = None,
    ) -> "Rollouts":
        """Pad N prompts and what was sampled after each, its end token included, onto the policy's device."""
        pad, device = policy.tokenizer.pad_token_id, policy.device
        prompt_ids, prompt_mask = _padded(prompts, pad, left=True)
        completion_ids, completion_mask = _padded(completions, pad)
        return cls(
            prompt_ids.to(device),
            prompt_mask.to(device),
            completion_ids.to(device),
            completion_mask.to(device),
            [decode_completion(policy.tokenizer, ids) for ids in completions],
            None if logps is None else _padded(logps, 0.0)[0].to(device),
        )

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
            logps=None if self.logps is None else self.logps[chosen, :width],
        )


class RolloutEngine(Protocol):
    """Anything that samples responses."""

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingConfig, max_tokens: int, seed: int
    ) -> Rollouts:
        """`sampling.n` responses of at most `max_tokens` tokens to each prompt, the same for the same seed.

        Raises:
            EngineDied: the process that samples is gone.
        """
        ...

    def update_weights(self, policy: Policy) -> None:
        """Sample from these weights from now on; an engine may read them as late as its next `generate`."""
        ...


class EngineDied(ChildProcessError):
    """The process of a rollout engine ended. Engines raise it from `generate` alone, between two updates."""


def choose_engine(config: TrainConfig) -> Callable[[Policy], AbstractContextManager[RolloutEngine]]:
    """What opens the engine of `rollout.engine` on a policy, to be closed after the last rollout.

    Raises:
        ValueError: it cannot run here.
    """
    if config.rollout.engine == "vllm":
        from outcome_rl.driver.rollout_vllm import VllmEngine, check_vllm

        check_vllm()
        return lambda policy: closing(VllmEngine(policy, config))
    return lambda policy: nullcontext(TransformersEngine(policy, config.rollout.micro_batch_size))


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
        prompt_ids, prompt_mask = _padded(repeated, self.policy.tokenizer.pad_token_id, left=True)
        ends = set(self.policy.end_token_ids)
        completions = []
        devices = [self.policy.device] if self.policy.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):  # the seed decides the samples and nothing else
            torch.manual_seed(seed)
            for start in range(0, len(repeated), self.micro_batch_size):
                rows = slice(start, start + self.micro_batch_size)
                sampled = self._generate_rows(prompt_ids[rows], prompt_mask[rows], sampling, max_tokens)
                completions += [_up_to_the_end(ids, ends) for ids in sampled.tolist()]
        return Rollouts.assemble(self.policy, repeated, completions)

    def _generate_rows(
        self, prompt_ids: Tensor, prompt_mask: Tensor, sampling: SamplingConfig, max_tokens: int
    ) -> Tensor:
        from transformers import GenerationConfig

        device = self.policy.device
        settings: dict[str, Any] = {
            "do_sample": True,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k if sampling.top_k > 0 else 0,
            "max_new_tokens": max_tokens,
            "pad_token_id": self.policy.tokenizer.pad_token_id,
            "eos_token_id": self.policy.end_token_ids,
        }
        with _only_setting(self.policy.model, GenerationConfig(**settings)):
            sequences: Tensor = self.policy.model.generate(
                input_ids=prompt_ids.to(device), attention_mask=prompt_mask.long().to(device)
            )
        return sequences[:, prompt_ids.shape[1] :]


def _padded(rows: Sequence[Sequence[float]], pad: float, left: bool = False) -> tuple[Tensor, Tensor]:
    """Rows of unlike length as one tensor, and which of its elements are theirs."""
    width = max(map(len, rows))
    gaps = [[pad] * (width - len(row)) for row in rows]
    values = torch.tensor([[*gap, *row] if left else [*row, *gap] for row, gap in zip(rows, gaps, strict=True)])
    lengths = torch.tensor([[len(row)] for row in rows])
    place = torch.arange(width)[None]
    return values, place >= width - lengths if left else place < lengths


def _up_to_the_end(ids: list[int], ends: set[int]) -> list[int]:
    """Everything after the first end token is padding, also where the pad token is an end token."""
    first = next((place for place, token in enumerate(ids) if token in ends), len(ids))
    return ids[: first + 1]


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
