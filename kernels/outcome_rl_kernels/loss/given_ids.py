"""Log-probabilities of given tokens and of all others together, from the row kernels' statistics of the others.

Shapes: R rows (tokens), K given ids, V vocabulary. The kernels pass over the logits with -inf in place of those of the
ids, which gives the log-sum-exp L and the entropy H of the others. With the logits s_k / temperature of different ids,

    total = log(exp(L) + sum_k exp(s_k))     logp_k = s_k - total     rest = L - total
    entropy = exp(rest) (H - rest) - sum_k exp(logp_k) logp_k

in float64, where 1 less a probability near 1 is no rounding. Autograd takes their derivatives by s_k, L and H; the
kernels make gradients of the others' logits from the last two, and those of the ids are written afterwards.
"""

from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from outcome_rl_kernels.loss.operands import recorded
from outcome_rl_kernels.loss.rows.api import RowKernels
from outcome_rl_kernels.loss.types import LogitRows
from outcome_rl_kernels.loss.vocab_parallel import VocabShard


class _Places(NamedTuple):
    """The places of ids in a shard of the vocabulary."""

    own_RK: Tensor  # 0 for ids of other shards
    is_own_RK: Tensor
    logits_RK: Tensor


def values_of_ids(rows: LogitRows, ids_RK: Tensor, kernels: RowKernels, shard: VocabShard) -> Tensor:
    """Return log-probabilities of ids, of all others together, and entropies, (K + 2, R); this spoils the logits."""
    places = _hide(rows, ids_RK, shard)
    statistics = kernels.row_statistics(rows)
    log_sums_R, entropies_R = kernels.log_sums(statistics, rows.temperature), statistics.entropies_R
    return _values(_scores(places, rows.temperature, shard), log_sums_R, entropies_R, ids_RK)


def write_gradients_of_ids(
    rows: LogitRows, ids_RK: Tensor, grads_XR: Tensor, grad_RV: Tensor, kernels: RowKernels, shard: VocabShard
) -> None:
    """Write the gradient by the logits of the sum of `values_of_ids` times `grads_XR`; it may overwrite the logits."""
    places = _hide(rows, ids_RK, shard)
    statistics = kernels.row_statistics(rows)
    log_sums_R = kernels.log_sums(statistics, rows.temperature)
    columns = _scores(places, rows.temperature, shard), log_sums_R, statistics.entropies_R.double()
    leaves = [column.detach().requires_grad_() for column in columns]
    with recorded():
        values_XR = _values(leaves[0], leaves[1], leaves[2], ids_RK)
        score_grads_RK, sum_grads_R, entropy_grads_R = torch.autograd.grad(values_XR, leaves, grads_XR.double())
    dtype = statistics.entropies_R.dtype
    possible = rows._replace(active_R=log_sums_R != -torch.inf)  # for other rows the kernels write zeros
    kernels.row_gradients(possible, statistics, -sum_grads_R.to(dtype), entropy_grads_R.to(dtype), grad_RV)
    if grad_RV is not rows.logits_RV:  # the derivative of a cap needs them
        shown_RK = places.logits_RK.masked_fill(~places.is_own_RK, -torch.inf)
        rows.logits_RV.scatter_reduce_(1, places.own_RK, shown_RK, "amax")
    own_R1, is_own_R1 = places.own_RK[:, :1], places.is_own_RK[:, :1]  # the label of the kernels
    grad_RV.scatter_(1, own_R1, grad_RV.gather(1, own_R1).masked_fill(is_own_R1, 0))
    own_grads_RK = (score_grads_RK / rows.temperature).masked_fill(~places.is_own_RK, 0)
    grad_RV.scatter_add_(1, places.own_RK, own_grads_RK.to(grad_RV.dtype))


def _hide(rows: LogitRows, ids_RK: Tensor, shard: VocabShard) -> _Places:
    """Write -inf over the logits of ids."""
    own_RK = ids_RK - shard.first
    is_own_RK = (own_RK >= 0) & (own_RK < shard.size)
    own_RK = own_RK.where(is_own_RK, 0)
    logits_RK = rows.logits_RV.gather(1, own_RK)
    hidden_RK = torch.full_like(logits_RK, torch.inf).masked_fill(is_own_RK, -torch.inf)
    rows.logits_RV.scatter_reduce_(1, own_RK, hidden_RK, "amin")
    return _Places(own_RK, is_own_RK, logits_RK)


def _scores(places: _Places, temperature: float, shard: VocabShard) -> Tensor:
    """Return the logits of ids / temperature, float64; NaN, which shows on a GPU, for ids outside the vocabulary."""
    own_RK = places.logits_RK.double().masked_fill(~places.is_own_RK, 0) / temperature
    columns_2RK = torch.stack([own_RK, places.is_own_RK.double()])
    if shard.group is not None:
        dist.all_reduce(columns_2RK, group=shard.group)
    return columns_2RK[0].masked_fill(columns_2RK[1] != 1, torch.nan)


def _values(scores_RK: Tensor, log_sums_R: Tensor, entropies_R: Tensor, ids_RK: Tensor) -> Tensor:
    sorted_RK, order_RK = ids_RK.sort(dim=1)
    is_new_RK = torch.ones_like(ids_RK, dtype=torch.bool)
    is_new_RK.scatter_(1, order_RK[:, 1:], sorted_RK[:, 1:] != sorted_RK[:, :-1])
    parts = torch.cat([log_sums_R[:, None], scores_RK.masked_fill(~is_new_RK, -torch.inf)], dim=1)
    totals_R = parts.logsumexp(dim=1)
    logps_RK, rests_R = scores_RK - totals_R[:, None], log_sums_R - totals_R
    # A probability of 0 adds 0 to the entropy, not 0 * -inf.
    of_others_R = (entropies_R - rests_R).masked_fill(rests_R.isneginf(), 0)
    of_ids_RK = logps_RK.masked_fill(logps_RK.isneginf() | ~is_new_RK, 0)
    entropy_R = rests_R.exp() * of_others_R - (logps_RK.exp() * of_ids_RK).sum(dim=1)
    return torch.cat([logps_RK.t(), torch.stack([rests_R, entropy_R])])
