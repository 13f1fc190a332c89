"""Responses token by token from a causal language model of transformers, leaner than its `generate`.

- The prompt of a group is computed once, and its cache is handed to all the samples.
- Rows that have ended leave the batch.
- The cache has room to grow. `DynamicCache` concatenates, which moves all of it at every token.
- A token costs one forward pass and one draw, on the device; the host looks whether all have ended now and then.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from outcome_rl.driver.config import SamplingConfig
from outcome_rl.driver.policy import Policy
from outcome_rl.driver.rollout import padded
from outcome_rl.driver.sampling import draw, uniforms, warper

LOOK_EVERY = 8  # tokens, on a GPU: it waits for the host each time; on the CPU looking is free


@torch.no_grad()
def decode(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    owners: Sequence[int],
    seeds: Sequence[int],
    sampling: SamplingConfig,
    max_tokens: int,
) -> list[list[int]]:
    """Sample a response of at most `max_tokens` tokens for each row, its end token included.

    Args:
        policy: what to sample from.
        prompts: B prompts' token ids.
        owners: which of the prompts each of the R rows continues.
        seeds: of each row; they alone decide what is drawn.
        sampling: temperature, top_k and top_p; `n` is not read.
    """
    device = policy.device
    warp = warper(sampling)
    end_ids = policy.end_token_ids
    ends = torch.tensor(end_ids, device=device)
    look_every = 1 if device.type == "cpu" else LOOK_EVERY
    uniforms_RT = uniforms(seeds, max_tokens).to(device)
    tokens_RT = torch.full((len(owners), max_tokens), policy.tokenizer.pad_token_id, device=device)

    stream = _TokenStream(policy, prompts, max_tokens)
    owners_R = torch.tensor(owners, device=device)
    logits_RV = stream.read()[owners_R]
    stream.select(owners_R)
    rows = torch.arange(len(owners), device=device)  # those still in the batch; it shrinks
    ended = torch.zeros(len(owners), dtype=torch.bool, device=device)
    for place in range(max_tokens):
        tokens = draw(warp(logits_RV.float()), uniforms_RT[rows, place])
        tokens_RT[rows, place] = tokens
        ended |= torch.isin(tokens, ends)
        if place % look_every == look_every - 1:
            left = (~ended).nonzero()[:, 0]
            if len(left) == 0:
                break
            if 2 * len(left) <= len(rows):  # moving the cache costs about a step
                rows, ended, tokens = rows[left], ended[left], tokens[left]
                stream.select(left)
        if place + 1 < max_tokens:
            logits_RV = stream.feed(tokens)
    return [_up_to_the_end(ids, end_ids) for ids in tokens_RT.tolist()]


class _TokenStream:
    """The model and its cache: tokens in, logits (R, V) of the next ones out."""

    def __init__(self, policy: Policy, prompts: Sequence[Sequence[int]], max_tokens: int) -> None:
        self.policy = policy
        self.cache = DynamicCache(config=policy.model.config)
        self.cache.layers = [_RoomyLayer() if type(layer) is DynamicLayer else layer for layer in self.cache.layers]
        ids_BP, mask_BP = padded(prompts, policy.tokenizer.pad_token_id, left=True)
        self.length = ids_BP.shape[1]
        self.mask: Tensor | None = None  # without padding attention needs none, and is faster
        if not mask_BP.all():
            room = mask_BP.new_ones(len(mask_BP), max_tokens)
            self.mask = torch.cat([mask_BP, room], dim=1).long().to(policy.device)
        self.positions = (mask_BP.long().cumsum(dim=1) - 1).clamp(min=0).to(policy.device)  # of what is fed
        self.prompt_ids = ids_BP.to(policy.device)

    def read(self) -> Tensor:
        """The prompts, padded on the left where their lengths differ."""
        return self._forward(self.prompt_ids)

    def select(self, rows: Tensor) -> None:
        """Go on with these rows (R,) alone, each as often as it is named."""
        self.cache.reorder_cache(rows)
        self.positions = self.positions[rows]
        self.mask = None if self.mask is None else self.mask[rows]

    def feed(self, tokens_R: Tensor) -> Tensor:
        """One more token in every row."""
        self.length += 1
        self.positions = self.positions[:, -1:] + 1
        return self._forward(tokens_R[:, None])

    def _forward(self, ids: Tensor) -> Tensor:
        output = self.policy.model(
            input_ids=ids,
            attention_mask=None if self.mask is None else self.mask[:, : self.length],
            position_ids=self.positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return cast(Tensor, output.logits[:, -1])


class _RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values (R, heads, length, channels) at the start of buffers that are longer by up to a quarter."""

    keys: Tensor
    values: Tensor
    _room: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        old = self.get_seq_length()
        new = old + key_states.shape[-2]
        if self._room is None or self._room[0].shape[-2] < new:
            longer = new + max(new // 4, 16)
            self._room = (
                key_states.new_empty(*key_states.shape[:-2], longer, key_states.shape[-1]),
                value_states.new_empty(*value_states.shape[:-2], longer, value_states.shape[-1]),
            )
            if old:
                self._room[0][..., :old, :] = self.keys
                self._room[1][..., :old, :] = self.values
        keys, values = self._room
        keys[..., old:new, :] = key_states
        values[..., old:new, :] = value_states
        self.keys, self.values = keys[..., :new, :], values[..., :new, :]
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        super().reorder_cache(beam_idx)
        self._room = None


def _up_to_the_end(ids: list[int], ends: Sequence[int]) -> list[int]:
    """A row goes on after its end until it leaves the batch; nothing of that is its response."""
    first = next((place for place, token in enumerate(ids) if token in ends), len(ids))
    return ids[: first + 1]
