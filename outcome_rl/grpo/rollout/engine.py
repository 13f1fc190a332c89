"""Rollout engines: prompts in, sampled responses out.

The seam is `RolloutEngine`, and `choose_engine` is where one is chosen. The transformers engine samples with the policy
that is being trained, in its process; an engine with weights of its own receives them by `update_weights` after every
step.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from outcome_rl.grpo.config.schema import SamplingConfig, TrainConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.outcomes.answer_mask import decode_completion


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
        prompt_ids, prompt_mask = padded(prompts, pad, left=True)
        completion_ids, completion_mask = padded(completions, pad)
        return cls(
            prompt_ids.to(device),
            prompt_mask.to(device),
            completion_ids.to(device),
            completion_mask.to(device),
            [decode_completion(policy.tokenizer, ids) for ids in completions],
            None if logps is None else padded(logps, 0.0)[0].to(device),
        )

    @classmethod
    def join(cls, parts: Sequence["Rollouts"]) -> "Rollouts":
        """The responses of several rollouts of one engine, one after another."""
        if len(parts) == 1:
            return parts[0]
        prompt_ids, prompt_mask, completion_ids, completion_mask, texts, logps = zip(*parts, strict=True)
        return cls(
            prompt_ids=join_padded(prompt_ids, left=True),
            prompt_mask=join_padded(prompt_mask, left=True),
            completion_ids=join_padded(completion_ids),
            completion_mask=join_padded(completion_mask),
            texts=[text for part in texts for text in part],
            logps=None if logps[0] is None else join_padded(logps),
        )

    def take(self, rows: Sequence[int]) -> "Rollouts":
        """Some of the responses, in this order."""
        return Rollouts(
            self.prompt_ids[rows],
            self.prompt_mask[rows],
            self.completion_ids[rows],
            self.completion_mask[rows],
            [self.texts[row] for row in rows],
            None if self.logps is None else self.logps[rows],
        )

    def to(self, device: torch.device) -> "Rollouts":
        """The same on another device."""
        return Rollouts(
            self.prompt_ids.to(device),
            self.prompt_mask.to(device),
            self.completion_ids.to(device),
            self.completion_mask.to(device),
            self.texts,
            None if self.logps is None else self.logps.to(device),
        )

    @property
    def num_tokens(self) -> int:
        return int(self.completion_mask.sum())


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
        """Sample from these weights from now on; of a policy that processes share out, all call it at once. An engine
        may read them as late as its next `generate`."""
        ...


class EngineDied(ChildProcessError):
    """The process of a rollout engine ended. Engines raise it from `generate` alone, between two updates."""


def choose_engine(config: TrainConfig) -> Callable[[Policy], AbstractContextManager[RolloutEngine]]:
    """What opens the engine of `rollout.engine` on a policy, to be closed after the last rollout.

    Raises:
        ValueError: it cannot run here.
    """
    if config.rollout.engine == "vllm":
        from outcome_rl.grpo.rollout.vllm_engine import VllmEngine, check_vllm

        check_vllm()
        return lambda policy: closing(VllmEngine(policy, config))
    from outcome_rl.grpo.rollout.transformers_engine import TransformersEngine

    return lambda policy: nullcontext(TransformersEngine(policy, config.rollout.micro_batch_size))


def padded(rows: Sequence[Sequence[float]], pad: float, left: bool = False) -> tuple[Tensor, Tensor]:
    """Rows of unlike length as one tensor, and which of its elements are theirs."""
    width = max(map(len, rows))
    gaps = [[pad] * (width - len(row)) for row in rows]
    values = torch.tensor([[*gap, *row] if left else [*row, *gap] for row, gap in zip(rows, gaps, strict=True)])
    lengths = torch.tensor([[len(row)] for row in rows])
    place = torch.arange(width)[None]
    return values, place >= width - lengths if left else place < lengths


def join_padded(parts: Sequence[Tensor], left: bool = False) -> Tensor:
    """Padded rows (N_i, T_i) of several batches as one (N, T); what is new is 0, and False of a mask."""
    width = max(part.shape[1] for part in parts)
    gaps = [(width - part.shape[1], 0) if left else (0, width - part.shape[1]) for part in parts]
    return torch.cat([functional.pad(part, gap) for part, gap in zip(parts, gaps, strict=True)])
