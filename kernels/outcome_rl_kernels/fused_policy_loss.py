"""The policy loss from hidden states in three matrix products, with logits that are never larger than a chunk.

Shapes: R active rows (tokens), C rows of a chunk, H hidden, V vocabulary.

The gradient of the loss with respect to a row's logits is known as soon as the row's log-sum-exp is: with
`g = d loss / d logp` and `e = d loss / d entropy`,

    d loss / d logit_v = g * (1[v = label] - p_v) / temperature - e * p_v * (log p_v + entropy) / temperature.

So the gradients are taken in the forward pass, chunk by chunk:

    logits_CV = hidden_CH @ weight.T              product 1
    row statistics of the chunk                   one read of the logits
    g, e from the reference's own loss formula    autograd over (C,) vectors
    logits_CV <- d loss / d logits_CV             one read and write
    d hidden_CH = logits_CV @ weight              product 2
    d weight   += logits_CV.T @ hidden_CH         product 3, accumulated in float32

and the backward pass only scales them. Nothing is recomputed, and every formula of the loss stands in `reference`
alone.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from outcome_rl_kernels.logit_rows import row_statistics, write_row_gradients
from outcome_rl_kernels.reference import (
    LossSettings,
    PolicyLossOutput,
    TokenBatch,
    TokenSums,
    metrics,
    token_sums,
    token_weights,
)

DEFAULT_WORKSPACE_BYTES = 256 * 2**20


def fused_policy_loss(
    hidden_RH: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    batch: TokenBatch,
    settings: LossSettings,
    normalizer: float | Tensor | None,
    workspace_bytes: int = DEFAULT_WORKSPACE_BYTES,
) -> PolicyLossOutput:
    """The loss of a batch whose R tokens are all active, from their hidden states.

    Args:
        hidden_RH, weight, bias: float32 or bfloat16 on the CPU, of one dtype.
        batch: inputs of the same R tokens.
        normalizer: replaces the denominator.
        workspace_bytes: most bytes of logits at a time; a chunk has at least one row, and with
            `importance_level="sequence"` at least one sequence.
    """
    if not torch.is_grad_enabled():  # autograd does not tell the function below
        hidden_RH, weight, bias = hidden_RH.detach(), weight.detach(), None if bias is None else bias.detach()
    weights_R = token_weights(batch, settings, normalizer)
    chunks = list(_chunks(batch, settings, _chunk_rows(weight, workspace_bytes)))
    loss, *statistics = _FusedPolicyLoss.apply(hidden_RH, weight, bias, batch, weights_R, settings, chunks)  # type: ignore[no-untyped-call]
    logps_R, entropies_R, *sums = statistics
    return PolicyLossOutput(loss, logps_R, entropies_R, metrics(TokenSums(loss.detach(), *sums), len(logps_R)))


@torch.no_grad()
def fused_logprobs(
    hidden_RH: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels_R: Tensor,
    temperature: float,
    workspace_bytes: int = DEFAULT_WORKSPACE_BYTES,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies (R,) without gradient: one product, and one read of each logit."""
    logps_R = torch.empty(len(labels_R), dtype=torch.float32)
    entropies_R = torch.empty_like(logps_R)
    size = _chunk_rows(weight, workspace_bytes)
    for start in range(0, len(labels_R), size):
        chunk = slice(start, start + size)
        logits_CV = torch.nn.functional.linear(hidden_RH[chunk], weight, bias)
        statistics = row_statistics(logits_CV, labels_R[chunk], temperature)
        logps_R[chunk], entropies_R[chunk] = statistics.logps_R, statistics.entropies_R
    return logps_R, entropies_R


def _chunk_rows(weight: Tensor, workspace_bytes: int) -> int:
    return max(1, workspace_bytes // (weight.shape[0] * weight.element_size()))


def _chunks(batch: TokenBatch, settings: LossSettings, chunk_rows: int) -> Iterator[slice]:
    """Ranges of rows; whole sequences where the importance ratio is theirs."""
    total = len(batch.labels_N)
    if settings.importance_level == "token" or batch.old_logps_N is None:
        for start in range(0, total, chunk_rows):
            yield slice(start, min(start + chunk_rows, total))
        return
    ends = batch.sequence_ids_N.unique_consecutive(return_counts=True)[1].cumsum(0).tolist()  # type: ignore[no-untyped-call]
    start = 0
    for end, following in pairwise([*ends, None]):
        if following is None or following - start > chunk_rows:
            yield slice(start, end)
            start = end


class _FusedPolicyLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_RH: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        batch: TokenBatch,
        weights_R: Tensor,
        settings: LossSettings,
        chunks: list[slice],
    ) -> tuple[Tensor, ...]:
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        wants_grad = wants_hidden or wants_weight or wants_bias
        hidden_grad = torch.empty_like(hidden_RH) if wants_hidden else None
        # One chunk's product can be the gradient itself; several are added up in float32.
        weight_grad = torch.zeros_like(weight, dtype=torch.float32) if wants_weight and len(chunks) != 1 else None
        bias_grad = torch.zeros_like(weight[:, 0], dtype=torch.float32) if wants_bias else None
        logps_R = torch.zeros(len(hidden_RH), dtype=torch.float32)
        entropies_R = torch.zeros_like(logps_R)
        totals = [torch.zeros(()) for _ in TokenSums._fields]
        largest = max((rows.stop - rows.start for rows in chunks), default=0)
        workspace = torch.empty(largest, weight.shape[0], dtype=weight.dtype)
        for rows in chunks:
            hidden_CH = hidden_RH[rows]
            logits_CV = workspace[: rows.stop - rows.start]
            if bias is None:
                torch.mm(hidden_CH, weight.t(), out=logits_CV)
            else:
                torch.addmm(bias, hidden_CH, weight.t(), out=logits_CV)
            part = batch.select(rows)
            statistics = row_statistics(logits_CV, part.labels_N, settings.temperature)
            logps_R[rows], entropies_R[rows] = statistics.logps_R, statistics.entropies_R
            sums, logp_grads_C, entropy_grads_C = _coefficients(
                statistics.logps_R, statistics.entropies_R, part, weights_R[rows], settings
            )
            for total, value in zip(totals, sums, strict=True):
                total += value
            if not wants_grad:
                continue
            write_row_gradients(
                logits_CV, part.labels_N, settings.temperature, statistics, logp_grads_C, entropy_grads_C
            )
            if hidden_grad is not None:
                torch.mm(logits_CV, weight, out=hidden_grad[rows])
            if weight_grad is not None and weight.dtype == torch.float32:
                weight_grad.addmm_(logits_CV.t(), hidden_CH)
            elif weight_grad is not None:
                weight_grad += logits_CV.t() @ hidden_CH
            elif wants_weight:
                weight_grad = logits_CV.t() @ hidden_CH
            if bias_grad is not None:
                bias_grad += logits_CV.sum(dim=0, dtype=torch.float32)
        ctx.save_for_backward(
            hidden_grad,
            None if weight_grad is None else weight_grad.to(weight.dtype),
            None if bias_grad is None or bias is None else bias_grad.to(bias.dtype),
        )
        loss, *others = totals
        ctx.mark_non_differentiable(logps_R, entropies_R, *others)
        return loss, logps_R, entropies_R, *others

    @staticmethod
    def backward(ctx: Any, loss_grad: Tensor, *unused: Any) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError("linear_policy_loss(impl='native') has no second derivatives; use impl='reference'")
        # `loss.backward()` comes with 1: a copy of the weight's gradient would cost a tenth of the whole.
        if loss_grad.item() == 1:
            return *ctx.saved_tensors, None, None, None, None
        scaled = (None if grad is None else grad * loss_grad.to(grad.dtype) for grad in ctx.saved_tensors)
        return *scaled, None, None, None, None


def _coefficients(
    logps_C: Tensor, entropies_C: Tensor, part: TokenBatch, weights_C: Tensor, settings: LossSettings
) -> tuple[TokenSums, Tensor, Tensor | None]:
    """The sums of a chunk, and the derivatives of its loss by log-probability and entropy of each row."""
    with torch.enable_grad():
        logps_C = logps_C.detach().requires_grad_()
        entropies_C = entropies_C.detach().requires_grad_(settings.entropy_coef != 0)
        sums = token_sums(logps_C, entropies_C, part, weights_C, settings)
        inputs = (logps_C, entropies_C) if settings.entropy_coef != 0 else (logps_C,)
        grads = torch.autograd.grad(sums.loss, inputs)
    return sums._replace(loss=sums.loss.detach()), grads[0], grads[1] if grads[1:] else None
