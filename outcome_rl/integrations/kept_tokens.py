"""The tokens that a sampler kept (top-p, top-k, min-p), from the fields of stacks to the `support` of the losses.

Under such a filter the sampler's distribution is the softmax over the kept tokens. A loss over the whole vocabulary
then has ratios whose mean is not 1; with `support` it is that of the policy that sampled.

    support = from_counts(branch.sampling_mask.ids, branch.sampling_mask.counts)     # verifiers 0.4, and prime-rl
    support = from_rows(batch["rollout_sample_support"].values)                      # SkyRL 0.4, packed responses
    linear_policy_loss(hidden, weight, labels, advantages, mask, support=support, cu_seqlens=...)

A token whose filter is unknown has no kept tokens: leave it out by `mask`, as prompts and texts of tools are.
"""

import torch
from torch import Tensor

from outcome_rl_kernels.loss.types import Support


def from_counts(ids: object, counts: object) -> Support:
    """Return the support of N tokens from flat kept ids and their number for each token, as verifiers holds them.

    Args:
        ids: (E,) integers, the kept token ids of one token after another; a tensor, an array or a list.
        counts: (N,) integers, how many of them each token has; 0 where none are known.

    Raises:
        ValueError: the counts do not add up to E.
    """
    flat, sizes = torch.as_tensor(ids, dtype=torch.int64), torch.as_tensor(counts, dtype=torch.int64)
    offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    if int(offsets[-1]) != len(flat):
        raise ValueError(f"counts must add up to the number of ids, {len(flat)}; got {int(offsets[-1])}")
    return Support(offsets, flat)


def from_rows(rows: object) -> Support:
    """Return the support of N tokens from a matrix of kept ids, filled up with negative numbers, as SkyRL holds them.

    Args:
        rows: (N, K) integers, -1 after the last kept id of a token; a row of -1 where none are known.

    Raises:
        ValueError: it is no matrix.
    """
    table_NK: Tensor = torch.as_tensor(rows)
    if table_NK.dim() != 2:
        raise ValueError(f"rows must have shape (N, K), one row of kept ids a token; got {tuple(table_NK.shape)}")
    is_kept_NK = table_NK >= 0
    return from_counts(table_NK[is_kept_NK], is_kept_NK.sum(dim=1))
