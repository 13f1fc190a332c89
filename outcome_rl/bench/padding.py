"""Padded tensors of a batch, for the peers that take them; this library's own update packs its responses."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from outcome_rl.grpo.types import Rollout, Sample


class Padded(NamedTuple):
    """N rollouts: prompts padded on the left to P tokens, responses on the right to T."""

    prompt_ids: Tensor  # (N, P) int64
    prompt_mask: Tensor  # (N, P) bool
    completion_ids: Tensor  # (N, T) int64
    completion_mask: Tensor  # (N, T) bool, the end token included


def pad_rollouts(rollouts: Sequence[Rollout], pad: int, device: torch.device) -> Padded:
    """Pad prompts and responses with the token `pad`."""
    prompt_ids, prompt_mask = _padded([rollout.prompt_ids for rollout in rollouts], pad, left=True)
    completion_ids, completion_mask = _padded([rollout.token_ids for rollout in rollouts], pad, left=False)
    return Padded(*(x.to(device) for x in (prompt_ids, prompt_mask, completion_ids, completion_mask)))


def answer_mask(batch: Sequence[Sample], width: int, device: torch.device) -> Tensor:
    """Mark the answer tokens of padded responses, (N, width) bool."""
    first, stop = torch.tensor([sample.answer_span for sample in batch]).T[..., None]
    positions = torch.arange(width)
    mask: Tensor = (positions >= first) & (positions < stop)
    return mask.to(device)


def _padded(rows: Sequence[Sequence[int]], pad: int, *, left: bool) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    gaps = [[pad] * (width - len(row)) for row in rows]
    ids = torch.tensor([[*gap, *row] if left else [*row, *gap] for row, gap in zip(rows, gaps, strict=True)])
    lengths = torch.tensor([[len(row)] for row in rows])
    positions = torch.arange(width)[None]
    mask = positions >= width - lengths if left else positions < lengths
    return ids, mask
