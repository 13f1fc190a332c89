"""Responses token by token from a causal language model of transformers, leaner than its `generate`.

- The prompt of a group is computed once, and its cache is handed to all the samples.
- On the CPU that holds for whatever samples have drawn alike so far, until they part.
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

from outcome_rl.grpo.config.schema import SamplingConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.engine import padded
from outcome_rl.grpo.rollout.sampling import draw, uniforms, warper

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
    uniforms_RT = uniforms(seeds, max_tokens).to(device)
    tokens_RT = torch.full((len(owners), max_tokens), policy.tokenizer.pad_token_id, device=device)

    stream = _TokenStream(policy, prompts, owners, max_tokens)
    look_every = 1 if stream.shares else LOOK_EVERY  # both are free where the host need not be waited for
    logits_RV = stream.read()
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
            # Moving the cache costs about a step; but rows that have ended would part shared branches.
            if 2 * len(left) <= len(rows) or stream.shares:
                rows, ended, tokens = rows[left], ended[left], tokens[left]
                stream.keep(left)
        if place + 1 < max_tokens:
            logits_RV = stream.feed(tokens)
    return [_up_to_the_end(ids, end_ids) for ids in tokens_RT.tolist()]


class _TokenStream:
    """The model and its cache: tokens of R rows in, logits (R, V) of the next ones out.

    The model computes G branches, each followed by one row or more. Where a GPU would have to wait for the host at
    every token to see which rows still agree, every row has a branch of its own.
    """

    def __init__(
        self, policy: Policy, prompts: Sequence[Sequence[int]], owners: Sequence[int], max_tokens: int
    ) -> None:
        self.policy = policy
        self.cache = DynamicCache(config=policy.model.config)
        self.cache.layers = [_RoomyLayer() if type(layer) is DynamicLayer else layer for layer in self.cache.layers]
        ids_GP, mask_GP = padded(prompts, policy.tokenizer.pad_token_id, left=True)
        self.length = ids_GP.shape[1]
        self.mask: Tensor | None = None  # without padding attention needs none, and is faster
        if not mask_GP.all():
            room = mask_GP.new_ones(len(mask_GP), max_tokens)
            self.mask = torch.cat([mask_GP, room], dim=1).long().to(policy.device)
        self.positions = (mask_GP.long().cumsum(dim=1) - 1).clamp(min=0).to(policy.device)  # of what is fed
        self.prompt_ids = ids_GP.to(policy.device)
        self.branches_R = torch.tensor(owners, device=policy.device)  # the one that each row follows
        self.shares = policy.device.type == "cpu"

    def read(self) -> Tensor:
        """The prompts, padded on the left where their lengths differ."""
        logits_RV = self._forward(self.prompt_ids)[self.branches_R]
        self._part()
        return logits_RV

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone."""
        self.branches_R = self.branches_R[rows]
        self._part()

    def feed(self, tokens_R: Tensor) -> Tensor:
        """One more token in every row."""
        self.length += 1
        if not self.shares:
            self.positions = self.positions[:, -1:] + 1
            return self._forward(tokens_R[:, None])
        stride = int(tokens_R.max()) + 1
        pairs_G, branches_R = torch.unique(self.branches_R * stride + tokens_R, return_inverse=True)
        parents_G = pairs_G // stride
        if len(parents_G) != len(self.positions) or not parents_G.equal(torch.arange(len(parents_G))):
            self._move(parents_G)
        self.branches_R = branches_R
        self.positions = self.positions[:, -1:] + 1
        return self._forward((pairs_G % stride)[:, None])[branches_R]

    def _part(self) -> None:
        """Give every row a branch of its own, unless branches are shared."""
        if not self.shares:
            self._move(self.branches_R)
            self.branches_R = torch.arange(len(self.branches_R), device=self.branches_R.device)

    def _move(self, branches: Tensor) -> None:
        """Go on with these branches alone, each as often as it is named."""
        self.cache.reorder_cache(branches)
        self.positions = self.positions[branches]
        self.mask = None if self.mask is None else self.mask[branches]

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
        if self._room is None:
            return
        length = self.get_seq_length()
        keys, values = self._room = (self._room[0].index_select(0, beam_idx), self._room[1].index_select(0, beam_idx))
        self.keys, self.values = keys[..., :length, :], values[..., :length, :]


def _up_to_the_end(ids: list[int], ends: Sequence[int]) -> list[int]:
    """A row goes on after its end until it leaves the batch; nothing of that is its response."""
    first = next((place for place, token in enumerate(ids) if token in ends), len(ids))
    return ids[: first + 1]
