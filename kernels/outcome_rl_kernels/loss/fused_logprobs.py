"""Log-probabilities and entropies from hidden states, a chunk of logits at a time.

Shapes: N tokens, R of them computed, H hidden, V vocabulary. The forward pass takes one product and reads each logit
once; the backward pass takes three more, the first to have the logits back (see `lm_head` and, for the gradient of a
row, `fused_linear_policy_loss`). A loss that is known beforehand is better off with `linear_policy_loss`: three in all.

They are the operators `torch.ops.outcome_rl.linear_logprobs` and `linear_logprobs_backward`.
"""

from typing import Any

import torch
from torch import Tensor

from outcome_rl_kernels.loss.checks import check_labels
from outcome_rl_kernels.loss.chunked_head import HeadGradients, LogitChunks, empty_gradients, rows_of_mask, spread
from outcome_rl_kernels.loss.gradient_scaling import refuse_second_derivatives
from outcome_rl_kernels.loss.row_kernels import row_passes


def fused_logprobs(
    hidden_NH: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    mask_N: Tensor | None,
    labels_N: Tensor,
    temperature: float,
    workspace_bytes: int | None,
    *,
    fp32_logits: bool,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the labels and entropies, float32 (N,), 0 where the mask is False.

    To know how many tokens a mask has, a GPU must be waited for.
    """
    logps_N, entropies_N = torch.ops.outcome_rl.linear_logprobs(
        hidden_NH, weight, bias, mask_N, labels_N, temperature, workspace_bytes, fp32_logits
    )
    return logps_N, entropies_N


@torch.library.custom_op("outcome_rl::linear_logprobs", mutates_args=())
def _forward(
    hidden_NH: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    mask_N: Tensor | None,
    labels_N: Tensor,
    temperature: float,
    workspace_bytes: int | None,
    fp32_logits: bool,
) -> tuple[Tensor, Tensor]:
    check_labels(labels_N, mask_N, weight.shape[0])
    rows_R = rows_of_mask(mask_N)
    hidden_RH, labels_R = hidden_NH.contiguous(), labels_N
    if rows_R is not None:
        hidden_RH, labels_R = hidden_NH[rows_R], labels_N[rows_R]
    values_2R = hidden_NH.new_empty(2, len(labels_R), dtype=torch.float32)
    passes = row_passes(weight.device)
    for rows, logits_CV in LogitChunks(hidden_RH, weight, bias, workspace_bytes, fp32_logits=fp32_logits):
        values_2R[0, rows], values_2R[1, rows] = passes.logprob_rows(logits_CV, labels_R[rows], temperature)
    values_2N = spread(values_2R, rows_R, len(labels_N), dim=1)
    return values_2N[0].clone(), values_2N[1].clone()


@_forward.register_fake
def _(hidden_NH: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    values_N = hidden_NH.new_empty(hidden_NH.shape[:1], dtype=torch.float32)  # len() would fix the length
    return values_N, torch.empty_like(values_N)


@torch.library.custom_op("outcome_rl::linear_logprobs_backward", mutates_args=())
def _gradients(
    logp_grads_N: Tensor,
    entropy_grads_N: Tensor,
    hidden_NH: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    mask_N: Tensor | None,
    labels_N: Tensor,
    temperature: float,
    workspace_bytes: int | None,
    fp32_logits: bool,
    wants_hidden: bool,
    wants_weight: bool,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    rows_R = rows_of_mask(mask_N)
    hidden_RH, columns = hidden_NH.contiguous(), (labels_N, logp_grads_N, entropy_grads_N)
    if rows_R is not None:
        hidden_RH, columns = hidden_NH[rows_R], (labels_N[rows_R], logp_grads_N[rows_R], entropy_grads_N[rows_R])
    labels_R, logp_grads_R, entropy_grads_R = columns
    passes = row_passes(weight.device)
    chunks = LogitChunks(hidden_RH, weight, bias, workspace_bytes, fp32_logits=fp32_logits)
    gradients = HeadGradients(hidden_RH, weight, bias, (wants_hidden, wants_weight, wants_bias), len(chunks))
    for rows, logits_CV in chunks:
        grad_CV = chunks.gradients_of(logits_CV)
        passes.logprob_rows_backward(
            logits_CV, labels_R[rows], temperature, logp_grads_R[rows], entropy_grads_R[rows], grad_CV
        )
        gradients.add(rows, grad_CV)
    hidden_grad, weight_grad, bias_grad = gradients.results()
    if wants_hidden:
        hidden_grad = spread(hidden_grad, rows_R, len(hidden_NH), dim=0)
    return hidden_grad, weight_grad, bias_grad


@_gradients.register_fake
def _(
    logp_grads_N: Tensor, entropy_grads_N: Tensor, hidden_NH: Tensor, weight: Tensor, bias: Tensor | None, *others: Any
) -> tuple[Tensor, ...]:
    return empty_gradients(hidden_NH, weight, bias, others[-3:])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.temperature, ctx.workspace_bytes, ctx.fp32_logits = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, logp_grads_N: Tensor, entropy_grads_N: Tensor) -> tuple[Tensor | None, ...]:
    refuse_second_derivatives(logp_grads_N, "linear_logprobs")
    wants = ctx.needs_input_grad[:3]
    grads = torch.ops.outcome_rl.linear_logprobs_backward(
        logp_grads_N,
        entropy_grads_N,
        *ctx.saved_tensors,
        ctx.temperature,
        ctx.workspace_bytes,
        ctx.fp32_logits,
        *wants,
    )
    return *(grad if wanted else None for grad, wanted in zip(grads, wants, strict=True)), *[None] * 5


_forward.register_autograd(_backward, setup_context=_setup_context)
