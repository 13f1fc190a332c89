"""Log-probabilities of given tokens and of all others together, a chunk of logits at a time.

Shapes: R rows (tokens), C rows of a chunk, K given ids, V vocabulary. One matrix product forward and three backward,
the first to recompute the logits; the formula is PyTorch's, and autograd differentiates it in each chunk. Shards of the
vocabulary take it in float64, from sums over the ranks.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from outcome_rl_kernels.backends import Backend
from outcome_rl_kernels.checks import is_traced, refuse_second_derivatives
from outcome_rl_kernels.loss.chunked_head import HeadGradients, LogitChunks, rows_of_mask
from outcome_rl_kernels.loss.reference import capped, entropies_of, head_logits, log_probabilities
from outcome_rl_kernels.loss.types import Head, LossSettings, Wants, wants_of
from outcome_rl_kernels.loss.vocab_parallel import VocabShard


def logprobs_of_ids(
    head: Head,
    ids_NK: Tensor,
    active_N: Tensor | None,
    settings: LossSettings,
    workspace_bytes: int | None,
    fp32_logits: bool,
    impl: Backend,
    shard: VocabShard,
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities (N, K + 1), the others' last, and entropies (N,); 0 on inactive tokens.

    Args:
        settings: of which the temperature and the soft cap are read.
        others: as for `linear_logprobs`, checked.
    """
    total, traced = len(ids_NK), is_traced(head.hidden)
    rows_R = None if traced else rows_of_mask(active_N)  # a compiler would guard on their number
    if rows_R is not None:
        head, ids_NK = head._replace(hidden=head.hidden[rows_R]), ids_NK[rows_R]
    elif active_N is not None:
        hidden_NH = head.hidden.masked_fill(~active_N[:, None], 0)
        head, ids_NK = head._replace(hidden=hidden_NH), ids_NK.masked_fill(~active_N[:, None], 0)
    if impl == "reference" or traced:
        logits_RV = capped(head_logits(head, slice(None), fp32_logits=fp32_logits), settings.softcap)
        values = _values(logits_RV, ids_NK, settings.temperature)
    else:
        options = settings, workspace_bytes, fp32_logits, shard
        values = _LogprobsOfIds.apply(*head, ids_NK, options)  # type: ignore[no-untyped-call]
    if rows_R is not None:
        values = values.new_zeros(total, values.shape[1]).index_put((rows_R,), values)
    elif active_N is not None:
        values = values.masked_fill(~active_N[:, None], 0)
    return values[:, :-1], values[:, -1]


def _values(logits_RV: Tensor, ids_RK: Tensor, temperature: float, shard: VocabShard | None = None) -> Tensor:
    """Return log-probabilities of the ids, of all other tokens together, and the entropy, (R, K + 2)."""
    if shard is not None and shard.group is not None:
        return _values_of_shard(logits_RV, ids_RK, temperature, shard)
    log_probs_RV = log_probabilities(logits_RV, temperature)
    # Not the logarithm of what the ids leave of 1, which is nothing but rounding where they hold all but 1e-8.
    rest_R1 = log_probs_RV.scatter(1, ids_RK, -torch.inf).logsumexp(dim=1, keepdim=True)
    return torch.cat([log_probs_RV.gather(1, ids_RK), rest_R1, entropies_of(log_probs_RV)[:, None]], dim=1)


def _values_of_shard(logits_RV: Tensor, ids_RK: Tensor, temperature: float, shard: VocabShard) -> Tensor:
    """Return `_values` over the whole vocabulary, in float64, where 1 less a probability near 1 is no rounding."""
    scores_RV, size = logits_RV.double() / temperature, logits_RV.shape[1]
    maxima_R1 = scores_RV.detach().amax(dim=1, keepdim=True)
    dist.all_reduce(maxima_R1, dist.ReduceOp.MAX, group=shard.group)
    distances_RV = scores_RV - maxima_R1
    masses_RV = distances_RV.exp()
    own_RK = ids_RK - shard.first
    is_own_RK = (own_RK >= 0) & (own_RK < size)
    places_RK = own_RK.where(is_own_RK, size)
    is_id_RV = torch.zeros_like(masses_RV[:, :1], dtype=torch.bool).repeat(1, size + 1).scatter(1, places_RK, True)
    chosen_RK = distances_RV.gather(1, places_RK.clamp(max=size - 1)).where(is_own_RK, 0)
    weighed_RV = masses_RV * distances_RV.masked_fill(distances_RV.isneginf(), 0)
    sums = [
        part.sum(dim=1, keepdim=True) for part in (masses_RV, masses_RV.masked_fill(is_id_RV[:, :-1], 0), weighed_RV)
    ]
    total_R1, rest_R1, weighed_R1, chosen_RK = _SumOverRanks.apply(  # type: ignore[no-untyped-call]
        torch.cat([*sums, chosen_RK], dim=1), shard.group
    ).split([1, 1, 1, ids_RK.shape[1]], dim=1)
    log_total_R1 = total_R1.log()
    entropy_R1 = log_total_R1 - weighed_R1 / total_R1
    return torch.cat([chosen_RK - log_total_R1, rest_R1.log() - log_total_R1, entropy_R1], dim=1)


class _SumOverRanks(torch.autograd.Function):
    """The sum over ranks that all compute the same function of it, so that each part gets the sum's gradient."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: Any) -> Tensor:
        total = part.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class _LogprobsOfIds(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_RH: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        ids_RK: Tensor,
        options: tuple[LossSettings, int | None, bool, VocabShard],
    ) -> Tensor:
        ctx.save_for_backward(hidden_RH, weight, bias, ids_RK)
        ctx.options = options
        rows, K = ids_RK.shape
        values = hidden_RH.new_empty(rows, K + 2, dtype=torch.float32)
        for part, logits_CV in _chunks(Head(hidden_RH, weight, bias), Wants(False, False, False), *options):
            values[part] = _values(logits_CV, ids_RK[part], options[0].temperature, options[3])
        return values

    @staticmethod
    def backward(ctx: Any, grads: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives(grads, "linear_logprobs")
        *operands, ids_RK = ctx.saved_tensors
        head, wants = Head(*operands), wants_of(ctx)
        settings, *_, shard = ctx.options
        chunks = _chunks(head, wants, *ctx.options)
        gradients = HeadGradients(head, wants, len(chunks))
        for part, logits_CV in chunks:
            leaf_CV = logits_CV.detach().float().requires_grad_()
            with torch.enable_grad():
                values = _values(leaf_CV, ids_RK[part], settings.temperature, shard)
            (grad_CV,) = torch.autograd.grad(values, leaf_CV, grads[part].to(values.dtype))
            gradients.add(part, chunks.before_cap_(chunks.gradients_of(logits_CV).copy_(grad_CV), logits_CV))
        hidden_grad, *others = gradients.results()
        found = (shard.summed(hidden_grad) if wants.hidden else hidden_grad), *others
        return *(grad if wanted else None for grad, wanted in zip(found, wants, strict=True)), None, None


def _chunks(
    head: Head,
    wants: Wants,
    settings: LossSettings,
    workspace_bytes: int | None,
    fp32_logits: bool,
    shard: VocabShard,
) -> LogitChunks:
    return LogitChunks(
        head, workspace_bytes, wants=wants, fp32_logits=fp32_logits, widest=shard.widest, softcap=settings.softcap
    )
