"""Responses as one row of tokens: no padding, and shared prefixes only once.

    padded              T P a a a .        packed    T P a a a b b Q c c
                        T P a b b b
                        T Q c c . .

Everything that works on one token at a time (embedding, projections, norms) takes the packed row. Only attention looks
at other tokens; it gathers keys and values into sequences, each response behind its prompt. The last token of a
response predicts nothing, so it is not in the row.

Sequences (a prompt with its response) are sorted by their tokens, so any prefix shared with an earlier sequence is
shared with the previous one: the template around all prompts, the prompt of a group, and the common prefix of its
responses. Sharing is exact: a hidden state depends only on its token and the tokens before it. In the loss every
response keeps its own tokens.
"""

from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import Literal, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from outcome_rl.grpo.types import Rollout

R = TypeVar("R")
Layout = Literal["ragged", "padded", "cut"]
"""How attention takes sequences: without padding; padded, with the queries of all tokens, so that no mask is needed; or
padded, without the queries of prefixes that an earlier sequence computes."""


class PackingPlan(NamedTuple):
    """Tokens and lengths of the N responses of a batch, and the prefixes that they share; all on the host."""

    tokens: Tensor  # int64: each prompt with its response, one after another
    starts: list[int]  # of each prompt among the tokens
    prompts: list[int]  # lengths
    responses: list[int]  # lengths
    groups: list[int]  # consecutive responses with the same number have the same prompt
    ranks: list[int]  # position of each response in lexicographic order, prompt included
    common: list[int]  # by rank: length of the prefix, prompt included, shared with the response one rank before

    @classmethod
    def of(cls, rollouts: Sequence[Rollout], *, share_prefixes: bool) -> Self:
        """Plan the packing of a batch.

        Args:
            rollouts: with responses to the same prompt side by side.
            share_prefixes: False computes every token of every response.
        """
        pieces = [ids for rollout in rollouts for ids in (rollout.prompt_ids, rollout.token_ids)]
        lengths = [len(ids) for ids in pieces]
        prompts, responses = lengths[::2], lengths[1::2]
        tokens = np.fromiter(chain.from_iterable(pieces), dtype=np.int64, count=sum(lengths))
        starts = np.cumsum([0, *lengths])[:-1:2].tolist()
        differs = (not share_prefixes or one.prompt_ids != other.prompt_ids for one, other in pairwise(rollouts))
        groups = list(accumulate(differs, initial=0))
        order, common = list(range(len(rollouts))), [0] * len(rollouts)
        if share_prefixes:
            read = [[*rollout.prompt_ids, *rollout.token_ids[:-1]] for rollout in rollouts]  # the last is not computed
            order.sort(key=read.__getitem__)
            common[1:] = [_common_prefix(read[before], read[row]) for before, row in pairwise(order)]
        ranks = np.argsort(order).tolist()  # the inverse permutation
        return cls(torch.from_numpy(tokens), starts, prompts, responses, groups, ranks, common)

    def shared(self, rows: Sequence[int]) -> list[int]:
        """Return the length of the prefix that each response shares with the previous one."""
        ranks = [self.ranks[row] for row in rows]
        return [0, *(min(self.common[min(a, b) + 1 : max(a, b) + 1]) for a, b in pairwise(ranks))]


class RaggedSequences(NamedTuple):
    """Queries and keys of sequences without padding, for flash-attn; the queries are the packed row itself."""

    keys_K: Tensor  # the token in each slot
    query_bounds: Tensor  # (P + 1,) int32
    key_bounds: Tensor  # (P + 1,) int32
    max_queries: int
    max_length: int


class PaddedSequences(NamedTuple):
    """Queries and keys of P sequences, padded on the right to L, for `scaled_dot_product_attention`.

    All begin with at least L - Q tokens of earlier sequences, so the queries are at the last Q positions.
    """

    queries_PQ: Tensor  # the token in each slot
    keys_PL: Tensor


class PackedBatch(NamedTuple):
    """S responses as one row of U tokens, how attention lays it out, and the M tokens to predict."""

    input_ids_U: Tensor
    position_ids_U: Tensor
    attention: RaggedSequences | list[PaddedSequences]
    slots_U: Tensor  # of each token among the queries of all of `attention`, one after the other
    lengths_S: Tensor  # of the sequences: each prompt with its response but for the last token
    states_M: Tensor  # the token whose hidden state predicts each response token
    labels_M: Tensor  # the response tokens
    response_bounds: Tensor  # (S + 1,) int64, bounds of the responses in M

    def predicting(self, chosen_M: Tensor) -> Self:
        """Return the batch with some of its response tokens to predict; on the host."""
        return self._replace(
            states_M=self.states_M[chosen_M],
            labels_M=self.labels_M[chosen_M],
            response_bounds=_bounds(chosen_M)[self.response_bounds],
        )


def pack(plan: PackingPlan, rows: Sequence[int], layout: Layout) -> PackedBatch:
    """Pack some responses of a batch, on the host.

    Args:
        plan: of the batch.
        rows: which responses; each shares the common prefix with the one before it here.
        layout: of attention.
    """
    starts_S = torch.tensor([plan.starts[row] for row in rows])
    prompts_S = torch.tensor([plan.prompts[row] for row in rows])
    responses_S = torch.tensor([plan.responses[row] for row in rows])
    lengths_S = prompts_S + (responses_S - 1).clamp(min=0)  # without the last token
    shared_S = torch.tensor(plan.shared(rows))
    own_S = lengths_S - shared_S  # in the packed row
    max_length = int(lengths_S.max())

    # For each position, the sequence that owns its token: this one, or the nearest earlier one whose prefix it shares.
    positions_L = torch.arange(max_length)
    owners_SL = torch.where(positions_L >= shared_S[:, None], torch.arange(len(rows))[:, None], 0).cummax(dim=0).values
    tokens_SL = (_bounds(own_S)[:-1] - shared_S)[owners_SL] + positions_L
    states_M = tokens_SL.flatten()[_ranges(torch.arange(len(rows)) * max_length + prompts_S - 1, responses_S)]
    tokens_SL = tokens_SL.where(positions_L < lengths_S[:, None], 0)
    attention: RaggedSequences | list[PaddedSequences]
    if layout == "ragged":
        attention, slots_U = _ragged(tokens_SL, lengths_S, shared_S)
    else:
        attention, slots_U = _padded(tokens_SL, lengths_S, shared_S, cut=layout == "cut")
    return PackedBatch(
        input_ids_U=plan.tokens[_ranges(starts_S + shared_S, own_S)],
        position_ids_U=_ranges(shared_S, own_S),
        attention=attention,
        slots_U=slots_U,
        lengths_S=lengths_S,
        states_M=states_M,
        labels_M=plan.tokens[_ranges(starts_S + prompts_S, responses_S)],
        response_bounds=_bounds(responses_S),
    )


def _ragged(tokens_SL: Tensor, lengths_S: Tensor, shared_S: Tensor) -> tuple[RaggedSequences, Tensor]:
    """Lay out the sequences that have unshared tokens; return them, and the slots of all tokens."""
    computed = lengths_S > shared_S
    tokens_PL, lengths_P, own_P = tokens_SL[computed], lengths_S[computed], (lengths_S - shared_S)[computed]
    inside_PL = torch.arange(tokens_PL.shape[1]) < lengths_P[:, None]
    bounds = _bounds(own_P).int(), _bounds(lengths_P).int()
    sequences = RaggedSequences(tokens_PL[inside_PL], *bounds, int(own_P.max()), int(lengths_P.max()))
    return sequences, torch.arange(int(own_P.sum()))


def _padded(
    tokens_SL: Tensor, lengths_S: Tensor, shared_S: Tensor, *, cut: bool
) -> tuple[list[PaddedSequences], Tensor]:
    """Lay out the sequences that have unshared tokens; return them, and the slots of all tokens."""
    starts_S, slot, parts = torch.empty_like(shared_S), 0, []
    for sequences_P in _alike(lengths_S, shared_S) if cut else [(lengths_S > shared_S).nonzero()[:, 0]]:
        length = int(lengths_S[sequences_P].max())
        first = int(shared_S[sequences_P].min())
        if not cut or 2 * first <= length:
            first = 0  # a causal kernel computes half of all pairs; one with a mask, all
        starts_S[sequences_P] = slot + torch.arange(len(sequences_P)) * (length - first) - first
        slot += len(sequences_P) * (length - first)
        tokens_PL = tokens_SL[sequences_P, :length]
        parts.append(PaddedSequences(tokens_PL[:, first:], tokens_PL))
    return parts, _ranges(starts_S + shared_S, lengths_S - shared_S)


def _alike(lengths_S: Tensor, shared_S: Tensor) -> list[Tensor]:
    """Split the sequences that have unshared tokens into at most two parts.

    The split minimises the number of attention pairs.

    The first of a group computes its prompt, the others do not.
    """
    computed_P = (lengths_S > shared_S).nonzero()[:, 0]
    order_P = computed_P[shared_S[computed_P].argsort(stable=True)]
    lengths_P, shared_P = lengths_S[order_P], shared_S[order_P]
    longest_before = lengths_P.cummax(dim=0).values
    longest_after = lengths_P.flip(0).cummax(dim=0).values.flip(0)

    def pairs(length: Tensor, shared: Tensor) -> Tensor:
        return length * torch.minimum(length, 2 * (length - shared))

    cuts = torch.arange(1, len(order_P))
    costs = cuts * pairs(longest_before[:-1], shared_P[:1])
    costs += (len(order_P) - cuts) * pairs(longest_after[1:], shared_P[1:])
    costs = costs.where(shared_P.diff() > 0, torch.iinfo(torch.int64).max)
    whole = len(order_P) * int(pairs(longest_after[:1], shared_P[:1]))
    if not len(costs) or int(costs.min()) >= whole:
        return [order_P]
    cut = int(costs.argmin()) + 1
    return [order_P[:cut], order_P[cut:]]


def to_device(records: R, device: torch.device) -> R:
    """Copy the tensors in records, or in lists of records, from the host to a device without waiting for it."""

    def move(tensor: Tensor) -> Tensor:
        return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)

    moved: R = tree_map_only(Tensor, move, records)
    return moved


def take_rows(values: Tensor, indices: Tensor) -> Tensor:
    """values[indices] over the first dimension, as an embedding: its gradient sums in one order on every device."""
    return torch.nn.functional.embedding(indices, values.reshape(len(values), -1)).view(-1, *values.shape[1:])


def _common_prefix(left: list[int], right: list[int]) -> int:
    if left == right:  # at the speed of C, and identical responses are frequent
        return len(left)
    pairs = zip(left, right, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


def _bounds(lengths_S: Tensor) -> Tensor:
    """(S + 1,): 0 and the ends of pieces that lie one after the other."""
    return torch.nn.functional.pad(lengths_S.cumsum(dim=0), (1, 0))


def _ranges(starts_S: Tensor, lengths_S: Tensor) -> Tensor:
    """start, start + 1, ... of each piece, joined."""
    shifts_S = starts_S - _bounds(lengths_S)[:-1]
    return torch.arange(int(lengths_S.sum())) + shifts_S.repeat_interleave(lengths_S)
