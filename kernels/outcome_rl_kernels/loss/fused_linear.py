"""The policy loss from hidden states in three matrix products, with logits that are never larger than a chunk.

Shapes: N tokens, R of them computed, C rows of a chunk, H hidden, V vocabulary.

The gradient of the loss with respect to a row's logits is known as soon as the row's log-sum-exp is: with
`g = d loss / d logp` and `e = d loss / d entropy`,

    d loss / d logit_v = g * (1[v = label] - p_v) / temperature - e * p_v * (log p_v + entropy) / temperature.

So the gradients are taken in the forward pass, chunk by chunk:

    logits_CV = hidden_CH @ weight.T              product 1
    logits_CV <- d loss / d logits_CV             one row pass: statistics, terms of the loss, gradient
    d hidden_CH = logits_CV @ weight              product 2
    d weight   += logits_CV.T @ hidden_CH         product 3, accumulated in float32

and the backward pass only scales them. Nothing is recomputed, with one exception: off-policy sequence-level ratios need
the log-probabilities of whole sequences before any gradient, which costs product 1 once more.

It is the operator `torch.ops.outcome_rl.linear_policy_loss`, so `torch.compile(fullgraph=True)` keeps it whole.
"""

from typing import Any

import torch
from torch import Tensor

from outcome_rl_kernels.loss.checks import check_labels
from outcome_rl_kernels.loss.chunked_head import HeadGradients, LogitChunks, empty_gradients, rows_of_mask, spread
from outcome_rl_kernels.loss.gradient_scaling import scaled_gradients
from outcome_rl_kernels.loss.operator_arguments import NUM_ARGUMENTS, SCHEMA, TokenArguments, loss_output
from outcome_rl_kernels.loss.reference import PolicyLossOutput
from outcome_rl_kernels.loss.row_kernels import RowTerms, row_passes


def fused_linear_policy_loss(
    hidden_NH: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    mask_N: Tensor,
    rows_R: Tensor | None,
    arguments: TokenArguments,
    workspace_bytes: int | None,
    *,
    fp32_logits: bool,
) -> PolicyLossOutput:
    """The loss of N tokens; `logps` and `entropies` are (N,).

    Args:
        hidden_NH, weight, bias: of one dtype that the device's row passes take.
        mask_N: bool, which tokens are computed.
        rows_R: increasing int64 indices that hold all of them; found from the mask where None, for which a GPU must be
            waited for.
        arguments: the other inputs of all N tokens.
        workspace_bytes, fp32_logits: see `LogitChunks`.
    """
    wants = [torch.is_grad_enabled() and x is not None and x.requires_grad for x in (hidden_NH, weight, bias)]
    loss, sums_7, logps_N, entropies_N, computed, *_ = torch.ops.outcome_rl.linear_policy_loss(
        hidden_NH, weight, bias, mask_N, rows_R, *arguments.flat(), workspace_bytes, fp32_logits, *wants
    )
    return loss_output(loss, sums_7, logps_N, entropies_N, computed)


def _linear_policy_loss(
    hidden_NH: Tensor, weight: Tensor, bias: Tensor | None, mask_N: Tensor, rows_R: Tensor | None, *arguments: Any
) -> tuple[Tensor, ...]:
    tokens, sequence_ids, num_sequences, settings = TokenArguments.of_flat(arguments[:NUM_ARGUMENTS])
    workspace_bytes, fp32_logits, *wants = arguments[NUM_ARGUMENTS:]
    check_labels(tokens.labels_R, mask_N, weight.shape[0])
    if rows_R is None:
        rows_R = rows_of_mask(mask_N)
    else:
        tokens = tokens.with_active(mask_N)
    hidden_RH = hidden_NH.contiguous()
    if rows_R is not None:
        hidden_RH, tokens, sequence_ids = hidden_NH[rows_R], tokens.select(rows_R), sequence_ids[rows_R]
    if tokens.active_R is not None:
        hidden_RH.masked_fill_(~tokens.active_R[:, None], 0)  # NaN times a gradient of 0 would reach d weight

    passes = row_passes(weight.device)
    chunks = LogitChunks(hidden_RH, weight, bias, workspace_bytes, fp32_logits=fp32_logits)
    if settings.importance_level == "sequence" and tokens.old_logps_R is not None:
        logps_R = hidden_RH.new_empty(len(hidden_RH), dtype=torch.float32)
        for rows, logits_CV in chunks:
            logps_R[rows], _ = passes.logprob_rows(logits_CV, tokens.labels_R[rows], settings.temperature)
        tokens = tokens.with_sequence_log_ratios(logps_R, sequence_ids, num_sequences)

    gradients = HeadGradients(hidden_RH, weight, bias, wants, len(chunks))
    terms = [hidden_RH.new_empty(len(RowTerms._fields), 0, dtype=torch.float32)]
    for rows, logits_CV in chunks:
        grad_CV = chunks.gradients_of(logits_CV) if any(wants) else None
        terms.append(passes.policy_rows(logits_CV, tokens.select(rows), settings, grad_CV))
        if grad_CV is not None:
            gradients.add(rows, grad_CV)
    terms_7R = torch.cat(terms, dim=1)
    sums_7 = terms_7R.sum(dim=1)
    hidden_grad, weight_grad, bias_grad = gradients.results()
    computed = sums_7.new_full((), len(hidden_RH), dtype=torch.int64)
    if tokens.active_R is not None:
        computed = tokens.active_R.sum()
    if wants[0]:
        hidden_grad = spread(hidden_grad, rows_R, len(mask_N), dim=0)
    of_token = RowTerms(*spread(terms_7R, rows_R, len(mask_N), dim=1))
    return (
        RowTerms(*sums_7).losses.clone(),
        sums_7,
        of_token.logps.clone(),
        of_token.entropies.clone(),
        computed,
        hidden_grad,
        weight_grad,
        bias_grad,
    )


_OPERATOR = torch.library.custom_op(
    "outcome_rl::linear_policy_loss",
    _linear_policy_loss,
    mutates_args=(),
    schema=f"(Tensor hidden, Tensor weight, Tensor? bias, Tensor mask, Tensor? rows, {SCHEMA}, "
    "SymInt? workspace_bytes, bool fp32_logits, bool wants_hidden, bool wants_weight, bool wants_bias) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)


@_OPERATOR.register_fake
def _(hidden_NH: Tensor, weight: Tensor, bias: Tensor | None, mask_N: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    values_N = mask_N.new_empty(mask_N.shape, dtype=torch.float32)
    return (
        values_N.new_empty(()),
        values_N.new_empty(len(RowTerms._fields)),
        values_N,
        torch.empty_like(values_N),
        values_N.new_empty((), dtype=torch.int64),
        *empty_gradients(hidden_NH, weight, bias, arguments[-3:]),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)  # else zeros for every output, gradients included
    ctx.num_inputs = len(inputs)
    ctx.save_for_backward(*(grad if wanted else None for grad, wanted in zip(output[-3:], inputs[-3:], strict=True)))


def _backward(ctx: Any, loss_grad: Tensor, *unused: Any) -> tuple[Tensor | None, ...]:
    grads = scaled_gradients(loss_grad, ctx.saved_tensors, "linear_policy_loss")
    return *grads, *(None for _ in range(ctx.num_inputs - len(grads)))


_OPERATOR.register_autograd(_backward, setup_context=_setup_context)
