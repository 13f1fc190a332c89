"""Responses of a batch as one row of tokens: no padding, and a prompt that several responses share only once.

    padded              P P a a a .        packed    P P a a b b b b Q c c
                        P P b b b b
                        . Q c c . .

Everything that works on one token at a time (embedding, projections, norms, the loss) takes the packed row. Attention
alone looks at other tokens; `Sequences` tells it which tokens make up each response with its prompt. The last token of
a response predicts nothing, so it is not in the row.

Shapes: R rows of the batch, P and T its padded prompt and response lengths; S responses of the micro-batch, N tokens of
its packed row, M response tokens to be predicted, K places that attention lays tokens out in.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from outcome_rl.driver.rollout import Rollouts


class Lengths(NamedTuple):
    """What packing has to know of a batch on the host: R numbers each."""

    prompts: list[int]
    responses: list[int]
    groups: list[int]  # responses with the same number stand side by side and have the same prompt

    @classmethod
    def of(cls, rollouts: "Rollouts", *, share_prompts: bool) -> "Lengths":
        """The lengths of a batch; a GPU is waited for here, once, and nowhere else in packing."""
        ids_RP, mask_RP, mask_RT = rollouts.prompt_ids, rollouts.prompt_mask, rollouts.completion_mask
        new_R = torch.ones_like(mask_RT[:, 0])
        if share_prompts:  # padding is the same where masks are
            new_R[1:] = ((ids_RP[1:] != ids_RP[:-1]) | (mask_RP[1:] != mask_RP[:-1])).any(dim=1)
        found = torch.stack([mask_RP.sum(dim=1), mask_RT.sum(dim=1), new_R.cumsum(dim=0)])
        return cls(*found.tolist())


class Sequences(NamedTuple):
    """How attention lays out N packed tokens, so that each response stands behind its own prompt."""

    tokens_K: Tensor  # which token stands in each place
    places_N: Tensor  # where each token's result is taken from; of a shared prompt, in its first response
    cu_seqlens: Tensor  # (S + 1,) int32, bounds of the sequences where K is without padding
    number: int  # S
    max_length: int  # of a sequence, in tokens
    padded: bool  # whether K is S * max_length, padded on the right, or without padding


class PackedBatch(NamedTuple):
    """Responses as one row of tokens, and where things of the batch are found in it."""

    rows_S: Tensor  # which responses of the batch
    input_ids_N: Tensor
    position_ids_N: Tensor
    sequences: Sequences
    states_M: Tensor  # the token whose hidden state predicts each response token
    responses_M: Tensor  # each response token as a flat index of the batch's (R, T)
    cu_seqlens: Tensor  # (S + 1,) int64, bounds of the responses in M

    def of_tokens(self, values_RT: Tensor) -> Tensor:
        """(M,): what a tensor over the whole batch says of the response tokens."""
        return values_RT.reshape(-1)[self.responses_M]


def pack(rollouts: "Rollouts", lengths: Lengths, rows: Sequence[int], *, padded: bool) -> PackedBatch:
    """Pack some responses of a batch.

    Args:
        rollouts: the batch, R responses.
        lengths: of the batch.
        rows: which responses; a prompt is shared by those of its group that follow one another here.
        padded: how attention lays out its places, see `Sequences`.

    Returns:
        The micro-batch, on the device of `rollouts`. Its indices are computed on the host.
    """
    rows_S = torch.tensor(rows)
    groups_S = torch.tensor(lengths.groups)[rows_S]
    responses_S = torch.tensor(lengths.responses)[rows_S]
    # Each response is two pieces: its prompt, and its tokens but the last.
    pieces_S2 = torch.stack([torch.tensor(lengths.prompts)[rows_S], (responses_S - 1).clamp(min=0)], dim=1)
    first_S = torch.ones(len(rows), dtype=torch.bool)
    first_S[1:] = groups_S[1:] != groups_S[:-1]
    own_S2 = torch.stack([torch.where(first_S, pieces_S2[:, 0], 0), pieces_S2[:, 1]], dim=1)  # in the packed row
    starts_S2 = _starts(own_S2.flatten()).view(-1, 2)
    starts_S2[:, 0] = starts_S2[:, 0][first_S][first_S.cumsum(dim=0) - 1]  # the prompt of the group

    whole_S = pieces_S2.sum(dim=1)
    max_length = int(whole_S.max())
    tokens_E = _ranges(starts_S2.flatten(), pieces_S2.flatten())  # one sequence after the other
    ends_S2 = pieces_S2.cumsum(dim=1)
    offsets_S2 = ends_S2 - pieces_S2  # of a piece in its sequence
    sequence_starts_S = _starts(whole_S)
    states_M = tokens_E[_ranges(sequence_starts_S + pieces_S2[:, 0] - 1, responses_S)]
    tokens_K = tokens_E
    if padded:
        sequence_starts_S = torch.arange(len(rows)) * max_length
        tokens_K = tokens_E.new_zeros(len(rows) * max_length)
        tokens_K[_ranges(sequence_starts_S, whole_S)] = tokens_E
    places_N = _ranges((sequence_starts_S[:, None] + offsets_S2).flatten(), own_S2.flatten())

    prompt_width, width = rollouts.prompt_ids.shape[1], rollouts.completion_ids.shape[1]
    sources_S2 = rows_S[:, None] * (prompt_width + width) + prompt_width - pieces_S2[:, :1] * torch.tensor([1, 0])
    sources_N = _ranges(sources_S2.flatten(), own_S2.flatten())
    device = rollouts.completion_ids.device

    def there(tensor: Tensor) -> Tensor:
        return tensor.to(device, non_blocking=True)

    return PackedBatch(
        rows_S=there(rows_S),
        input_ids_N=torch.cat([rollouts.prompt_ids, rollouts.completion_ids], dim=1).flatten()[there(sources_N)],
        position_ids_N=there(_ranges(offsets_S2.flatten(), own_S2.flatten())),
        sequences=Sequences(
            tokens_K=there(tokens_K),
            places_N=there(places_N),
            cu_seqlens=there(_bounds(whole_S).int()),
            number=len(rows),
            max_length=max_length,
            padded=padded,
        ),
        states_M=there(states_M),
        responses_M=there(_ranges(rows_S * width, responses_S)),
        cu_seqlens=there(_bounds(responses_S)),
    )


def take_rows(values: Tensor, indices: Tensor) -> Tensor:
    """values[indices] over the first dimension. As an embedding: its gradient adds up in one order on every device."""
    return torch.nn.functional.embedding(indices, values.reshape(len(values), -1)).view(-1, *values.shape[1:])


def _bounds(lengths_S: Tensor) -> Tensor:
    """(S + 1,): 0 and the ends of pieces that lie one after the other."""
    return torch.nn.functional.pad(lengths_S.cumsum(dim=0), (1, 0))


def _starts(lengths_S: Tensor) -> Tensor:
    return _bounds(lengths_S)[:-1]


def _ranges(starts_S: Tensor, lengths_S: Tensor) -> Tensor:
    """start, start + 1, ... of each piece, joined."""
    shifts_S = starts_S - _starts(lengths_S)
    return torch.arange(int(lengths_S.sum())) + shifts_S.repeat_interleave(lengths_S)
