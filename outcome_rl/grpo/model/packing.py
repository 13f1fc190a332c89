"""Responses of a batch as one row of tokens: no padding, and what responses to a prompt begin with alike only once.

    padded              P P a a a .        packed    P P a a a b b Q c c
                        P P a b b b
                        . Q c c . .

Everything that works on one token at a time (embedding, projections, norms) takes the packed row. Attention alone looks
at other tokens; `Sequences` tells it which tokens make up each response with its prompt. The last token of a response
predicts nothing, so it is not in the row.

The responses to a prompt are ordered as the leaves of the tree that their tokens make, so that what a response shares
with any before it, it shares with the one just before it. Sharing is exact: a hidden state depends on the tokens before
it alone. In the loss every response keeps its own tokens.

Shapes: R rows of the batch, P and T its padded prompt and response lengths; S responses of the micro-batch, N tokens of
its packed row, M response tokens to be predicted, K places that attention lays tokens out in.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from outcome_rl.grpo.rollout.engine import Rollouts


class Lengths(NamedTuple):
    """What packing has to know of a batch on the host: R numbers each."""

    prompts: list[int]
    responses: list[int]
    groups: list[int]  # responses with the same number stand side by side and have the same prompt
    ranks: list[int]  # place of a response in the order in which groups are kept together and their beginnings shared
    common: list[int]  # by rank: how many tokens, the prompt's too, it begins with like the response one rank before

    @classmethod
    def of(cls, rollouts: "Rollouts", *, share_prefixes: bool) -> "Lengths":
        """The lengths of a batch; a GPU is waited for here, at most twice, and nowhere else in packing."""
        ids_RP, mask_RP, mask_RT = rollouts.prompt_ids, rollouts.prompt_mask, rollouts.completion_mask
        new_R = torch.ones_like(mask_RT[:, 0])
        if share_prefixes:  # padding is the same where masks are
            new_R[1:] = ((ids_RP[1:] != ids_RP[:-1]) | (mask_RP[1:] != mask_RP[:-1])).any(dim=1)
        found = torch.stack([mask_RP.sum(dim=1), mask_RT.sum(dim=1), new_R.cumsum(dim=0)])
        prompts, responses, groups = found.tolist()
        members: dict[int, list[int]] = {}
        for row, group in enumerate(groups):
            members.setdefault(group, []).append(row)
        alike = _alike(rollouts, max(map(len, members.values())))
        ranks = [0] * len(groups)
        common: list[int] = []
        for rows in members.values():
            row, *left = rows
            ranks[row] = len(common)
            common.append(0)
            while left:
                # Each after the one before it that it is most alike: so a tree is walked branch by branch.
                shared, row = max((alike[abs(row - other) - 1][min(row, other)], -other) for other in left)
                row = -row
                left.remove(row)
                ranks[row] = len(common)
                common.append(prompts[row] + shared)
        return cls(prompts, responses, groups, ranks, common)

    def shared(self, rows: Sequence[int]) -> list[int]:
        """How many tokens each of some responses begins with like the one before it among them."""
        shared = [0]
        for before, row in pairwise(rows):
            first, last = sorted((self.ranks[before], self.ranks[row]))
            same = self.groups[before] == self.groups[row]
            shared.append(min(self.common[first + 1 : last + 1]) if same else 0)
        return shared


def _alike(rollouts: "Rollouts", most: int) -> list[list[int]]:
    """Of how many tokens two responses have in common at their beginning, the last ones left out: by the distance of
    their rows less one, which is below `most` - 1, and then by the upper row."""
    ids_RT = rollouts.completion_ids
    # The last token of a response, and all of padding, is like no other.
    inner_RT = torch.nn.functional.pad(rollouts.completion_mask[:, 1:], (0, 1))
    found = []
    for distance in range(1, most):
        unlike_RT = ids_RT[distance:] != ids_RT[:-distance]
        unlike_RT |= ~(inner_RT[distance:] & inner_RT[:-distance])
        first_R = unlike_RT.byte().argmax(dim=1)  # the first of them
        found.append(torch.nn.functional.pad(first_R, (0, distance)))
    return torch.stack(found).tolist() if found else []


class Sequences(NamedTuple):
    """How attention lays out N packed tokens, so that each response stands behind its own prompt."""

    tokens_K: Tensor  # which token stands in each place
    places_N: Tensor  # where each token's result is taken from; of a shared one, in its first response
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
        rows: which responses; each shares what it has in common with the one before it here.
        padded: how attention lays out its places, see `Sequences`.

    Returns:
        The micro-batch, on the device of `rollouts`. Its indices are computed on the host.
    """
    rows_S = torch.tensor(rows)
    prompts_S = torch.tensor(lengths.prompts)[rows_S]
    responses_S = torch.tensor(lengths.responses)[rows_S]
    whole_S = prompts_S + (responses_S - 1).clamp(min=0)  # without the last token
    shared_S = torch.tensor(lengths.shared(rows))
    own_S = whole_S - shared_S  # in the packed row
    max_length = int(whole_S.max())

    # Whose token stands at each place of a sequence: its own, or that of the last one above that has its own there.
    places_L = torch.arange(max_length)
    owners_SL = torch.where(places_L >= shared_S[:, None], torch.arange(len(rows))[:, None], 0).cummax(dim=0).values
    tokens_SL = (_starts(own_S) - shared_S)[owners_SL] + places_L
    tokens_E = tokens_SL[places_L < whole_S[:, None]]  # one sequence after the other
    sequence_starts_S = _starts(whole_S)
    states_M = tokens_E[_ranges(sequence_starts_S + prompts_S - 1, responses_S)]
    tokens_K = tokens_E
    if padded:
        sequence_starts_S = torch.arange(len(rows)) * max_length
        tokens_K = tokens_SL.where(places_L < whole_S[:, None], 0).flatten()

    prompt_width, width = rollouts.prompt_ids.shape[1], rollouts.completion_ids.shape[1]
    sources_S = rows_S * (prompt_width + width) + prompt_width - prompts_S + shared_S
    device = rollouts.completion_ids.device

    def there(tensor: Tensor) -> Tensor:
        return tensor.to(device, non_blocking=True)

    return PackedBatch(
        rows_S=there(rows_S),
        input_ids_N=torch.cat([rollouts.prompt_ids, rollouts.completion_ids], dim=1).flatten()[
            there(_ranges(sources_S, own_S))
        ],
        position_ids_N=there(_ranges(shared_S, own_S)),
        sequences=Sequences(
            tokens_K=there(tokens_K),
            places_N=there(_ranges(sequence_starts_S + shared_S, own_S)),
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
