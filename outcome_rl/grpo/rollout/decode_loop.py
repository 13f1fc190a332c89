"""Decode loop for a causal language model of transformers, leaner than its `generate`.

- The prompt of a group is computed once, and its cache is copied to all the samples.
- On the CPU this extends to every shared prefix: identical samples are computed once until they differ.
- Sequences that have ended leave the batch.
- The cache has room to grow. `DynamicCache` concatenates, which copies all of it at every token.
- A token costs one forward pass and one draw, on the device; the host checks at intervals whether all have ended. With
  top-k or top-p it waits at every token, for those that they kept.
"""

from collections.abc import Iterator, Sequence
from inspect import signature
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.masking_utils import create_causal_mask

from outcome_rl.grpo.config.schema import SamplingConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.sampling import draw, uniforms, warper
from outcome_rl.grpo.types import Prompts, Rollout
from outcome_rl.probe import TOKENS, Probe

_CACHE = "cache" if "cache" in signature(create_causal_mask).parameters else "past_key_values"  # before 5.24

CHECK_EVERY = 8  # tokens, on a GPU, because each check synchronises; on the CPU a check is free


@torch.no_grad()
def decode(
    policy: Policy, prompts: Prompts, seeds: Sequence[int], sampling: SamplingConfig, max_tokens: int
) -> list[Rollout]:
    """Sample S responses of at most `max_tokens` tokens, end tokens included.

    Args:
        policy: the model and its tokenizer.
        prompts: one per sequence; equal ones are computed once.
        seeds: one per sequence; sampling depends on nothing else.
        sampling: temperature, top_k and top_p; `n` is not read.
    """
    device = policy.device
    warp = warper(sampling)
    end_ids = policy.end_token_ids
    ends = torch.tensor(end_ids, device=device)
    uniforms_ST = uniforms(seeds, max_tokens).to(device)
    kept_ST: list[list[list[int]]] = [[] for _ in prompts]
    tokens_ST = torch.full((len(prompts), max_tokens), policy.tokenizer.pad_token_id, device=device)

    stream = TokenStream(policy, prompts, max_tokens)
    check_every = 1 if stream.shares else CHECK_EVERY  # branches are shared where checks are free, on the CPU
    logits_GV = stream.read_prompts()
    rows = torch.arange(len(prompts), device=device)  # the sequences still in the batch
    ended = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    for position in range(max_tokens):
        logits_GV = warp(logits_GV.float())
        if sampling.keeps_support:
            kept_G = _kept(logits_GV)
            for row, branch in zip(rows.tolist(), stream.branches_S.tolist(), strict=True):
                kept_ST[row].append(kept_G[branch])
        tokens = draw(logits_GV, uniforms_ST[rows, position], stream.branches_S)
        tokens_ST[rows, position] = tokens
        ended |= torch.isin(tokens, ends)
        if position % check_every == check_every - 1:
            left = (~ended).nonzero()[:, 0]
            if len(left) == 0:
                break
            # Copying the cache costs about a step; but ended sequences would split shared branches.
            if 2 * len(left) <= len(rows) or stream.shares:
                rows, ended, tokens = rows[left], ended[left], tokens[left]
                stream.keep(left)
        if position + 1 < max_tokens:
            logits_GV = stream.feed(tokens)
    rollouts = []
    for prompt, drawn, kept in zip(prompts, tokens_ST.tolist(), kept_ST, strict=True):
        # The tokens after the end token were sampled until the sequence left the batch.
        length = next((position for position, token in enumerate(drawn, start=1) if token in end_ids), len(drawn))
        kept_of_response = kept[:length] if sampling.keeps_support else None
        rollouts.append(Rollout.decoded(policy.tokenizer, prompt, drawn[:length], kept=kept_of_response))
    return rollouts


def check_cache(policy: Policy) -> None:
    """Check that prompts of different lengths are continued from the cache as in whole sequences.

    Raises:
        ValueError: they are not, as by a model whose state passes through padding, or is not in the cache.
    """

    def fed(probe: Probe) -> Iterator[tuple[Tensor, Tensor]]:
        stream = TokenStream(policy, probe.prompts, TOKENS)
        logits_STV = [stream.read_prompts()[stream.branches_S]]
        for tokens_S in torch.tensor([ids[-TOKENS:] for ids in probe.sequences], device=policy.device).T[:-1]:
            logits_STV.append(stream.feed(tokens_S)[stream.branches_S])
        return zip(torch.stack(logits_STV, dim=1), [x[-TOKENS - 1 : -1] for x in probe.logits], strict=True)

    if obstacle := (policy.probe or Probe(policy.model)).obstacle(fed):
        raise ValueError(
            f"{type(policy.model).__name__} does not continue prompts of different lengths from transformers' cache as "
            f"in whole sequences ({obstacle}), so samples would not be its own; set rollout.engine=vllm"
        )


class TokenStream:
    """The model and its cache: tokens of S sequences in, logits (G, V) of the next tokens out.

    The model computes G branches, the distinct prefixes of the sequences; `branches_S` gives the branch of each
    sequence. On a GPU every sequence has its own branch: finding equal ones would synchronise at every token.
    """

    def __init__(self, policy: Policy, prompts: Prompts, max_tokens: int) -> None:
        self.policy = policy
        self.cache = DynamicCache(config=policy.model.config)
        branches = {prompt: branch for branch, prompt in enumerate(dict.fromkeys(map(tuple, prompts)))}
        self.length = max(map(len, branches))
        self.cache.layers = [
            _RoomyLayer(self.length + max_tokens) if type(layer) is DynamicLayer else layer
            for layer in self.cache.layers
        ]
        gaps = [self.length - len(prompt) for prompt in branches]
        pad = policy.tokenizer.pad_token_id
        ids_GP = torch.tensor([[pad] * gap + list(prompt) for gap, prompt in zip(gaps, branches, strict=True)])
        self.prompt_ids = ids_GP.to(policy.device)
        positions_GP = torch.arange(self.length) - torch.tensor(gaps)[:, None]
        self.positions = positions_GP.clamp(min=0).to(policy.device)  # of the tokens fed last
        self.mask: Tensor | None = None  # without padding, attention is faster without a mask
        if any(gaps):
            room = positions_GP.new_ones(len(branches), max_tokens)
            self.mask = torch.cat([(positions_GP >= 0).long(), room], dim=1).to(policy.device)
        # The branch that each sequence follows.
        self.branches_S = torch.tensor([branches[tuple(prompt)] for prompt in prompts], device=policy.device)
        self.shares = policy.device.type == "cpu"
        # A window would have to be in a mask of four dimensions, and only scaled_dot_product_attention takes it.
        uses_sdpa = policy.packs or policy.model.config._attn_implementation == "sdpa"
        self.takes_whole_masks = uses_sdpa and all(type(layer) is _RoomyLayer for layer in self.cache.layers)

    def read_prompts(self) -> Tensor:
        """Feed the prompts, padded on the left where their lengths differ."""
        logits_GV = self._forward(self.prompt_ids)
        if not self.shares:
            logits_GV = logits_GV[self.branches_S]
        self._split()
        return logits_GV

    def keep(self, rows: Tensor) -> None:
        """Continue only with these sequences."""
        self.branches_S = self.branches_S[rows]
        self._split()

    def feed(self, tokens_S: Tensor) -> Tensor:
        """Feed one more token of every sequence."""
        self.length += 1
        if not self.shares:
            self.positions = self.positions[:, -1:] + 1
            return self._forward(tokens_S[:, None])
        stride = int(tokens_S.max()) + 1
        pairs_G, branches_S = torch.unique(self.branches_S * stride + tokens_S, return_inverse=True)
        parents_G = pairs_G // stride
        if len(parents_G) != len(self.positions) or not parents_G.equal(torch.arange(len(parents_G))):
            self._select(parents_G)
        self.branches_S = branches_S
        self.positions = self.positions[:, -1:] + 1
        return self._forward((pairs_G % stride)[:, None])

    def _split(self) -> None:
        """Give every sequence its own branch, unless branches are shared."""
        if not self.shares:
            self._select(self.branches_S)
            self.branches_S = torch.arange(len(self.branches_S), device=self.branches_S.device)

    def _select(self, branches: Tensor) -> None:
        """Keep only these branches, each as often as it is listed."""
        self.cache.reorder_cache(branches)
        self.positions = self.positions[branches]
        self.mask = None if self.mask is None else self.mask[branches]

    def _forward(self, ids: Tensor) -> Tensor:
        mask = None if self.mask is None else self.mask[:, : self.length]
        if mask is not None and self.takes_whole_masks and not self.shares and ids.shape[1] == 1:
            mask = mask[:, None, None].bool()  # transformers would look for gaps in one of two dimensions, and so wait
        output = self.policy.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=self.positions,
            use_cache=True,
            logits_to_keep=1,
            **{_CACHE: self.cache},
        )
        return cast(Tensor, output.logits[:, -1])


class _RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values (G, A, length, D) at the start of buffers that are longer by up to a quarter."""

    keys: Tensor
    values: Tensor
    _room: tuple[Tensor, Tensor] | None = None

    def __init__(self, limit: int) -> None:
        """Take keys and values of at most `limit` tokens."""
        super().__init__()
        self._limit = limit

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        old = self.get_seq_length()
        new = old + key_states.shape[-2]
        if self._room is None or self._room[0].shape[-2] < new:
            longer = min(new + max(new // 4, 16), self._limit)
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


def _kept(logits_SV: Tensor) -> list[list[int]]:
    """Return the tokens of each row that are not filtered out."""
    is_kept_SV = logits_SV > -torch.inf
    ids = is_kept_SV.nonzero()[:, 1].tolist()
    ends = is_kept_SV.sum(dim=1).cumsum(dim=0).tolist()
    return [ids[start:end] for start, end in pairwise([0, *ends])]
