"""The policy loss from logits with its gradient taken in the forward pass: one read of the logits, one write.

Shapes: N tokens, V vocabulary. The maths is the head of `fused_linear_policy_loss`, without its products. The gradient
(N, V) goes to a new tensor, or over the logits where the caller allows that.
"""

from typing import Any

import torch
from torch import Tensor

from outcome_rl_kernels.loss.checks import check_labels
from outcome_rl_kernels.loss.gradient_scaling import scaled_gradients
from outcome_rl_kernels.loss.operator_arguments import SCHEMA, TokenArguments, loss_output
from outcome_rl_kernels.loss.reference import PolicyLossOutput
from outcome_rl_kernels.loss.row_kernels import RowTerms, row_passes


def fused_policy_loss(
    logits_NV: Tensor, active_N: Tensor, arguments: TokenArguments, *, inplace: bool
) -> PolicyLossOutput:
    """The loss of the active ones of N tokens.

    Args:
        logits_NV: of a dtype that the device's row passes take; a layout without contiguous rows costs a copy.
        active_N: bool; other rows are not read and get gradient 0.
        arguments: the other inputs of the tokens.
        inplace: the gradient may overwrite the logits; it does where their rows are contiguous.
    """
    wants_grad = torch.is_grad_enabled() and logits_NV.requires_grad
    if inplace and wants_grad and logits_NV.is_contiguous():
        loss, *others = _InPlacePolicyLoss.apply(logits_NV, active_N, *arguments.flat())  # type: ignore[no-untyped-call]
    else:
        loss, *others, _ = torch.ops.outcome_rl.policy_loss(logits_NV, active_N, *arguments.flat(), wants_grad)
    sums_7, logps_N, entropies_N = others
    return loss_output(loss, sums_7, logps_N, entropies_N, active_N.sum())


def _rows(
    logits_NV: Tensor, active_N: Tensor, arguments: tuple[Any, ...], grad_NV: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss, sums of `RowTerms`, log-probabilities and entropies."""
    tokens, sequence_ids_N, num_sequences, settings = TokenArguments.of_flat(arguments)
    check_labels(tokens.labels_R, active_N, logits_NV.shape[1])
    tokens = tokens.with_active(active_N)
    passes = row_passes(logits_NV.device)
    if settings.importance_level == "sequence" and tokens.old_logps_R is not None:
        logps_N, _ = passes.logprob_rows(logits_NV, tokens.labels_R, settings.temperature)
        tokens = tokens.with_sequence_log_ratios(logps_N, sequence_ids_N, num_sequences)
    terms_7N = passes.policy_rows(logits_NV, tokens, settings, grad_NV)
    sums_7, of_token = terms_7N.sum(dim=1), RowTerms(*terms_7N)
    return RowTerms(*sums_7).losses.clone(), sums_7, of_token.logps.clone(), of_token.entropies.clone()


def _policy_loss(logits_NV: Tensor, active_N: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    *token_arguments, wants_grad = arguments
    rows_NV = logits_NV.contiguous()
    grad_NV = None
    if wants_grad:  # a copy that the layout forced is room for the gradient
        grad_NV = torch.empty_like(logits_NV) if rows_NV is logits_NV else rows_NV
    outputs = _rows(rows_NV, active_N, tuple(token_arguments), grad_NV)
    return *outputs, logits_NV.new_empty(0) if grad_NV is None else grad_NV


def _policy_loss_(logits_NV: Tensor, active_N: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    return _rows(logits_NV, active_N, arguments, logits_NV)


def _fake_outputs(active_N: Tensor) -> tuple[Tensor, ...]:
    values_N = active_N.new_empty(active_N.shape, dtype=torch.float32)
    return values_N.new_empty(()), values_N.new_empty(len(RowTerms._fields)), values_N, torch.empty_like(values_N)


_OPERATOR = torch.library.custom_op(
    "outcome_rl::policy_loss",
    _policy_loss,
    mutates_args=(),
    schema=f"(Tensor logits, Tensor active, {SCHEMA}, bool wants_grad) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
_OPERATOR_IN_PLACE = torch.library.custom_op(
    "outcome_rl::policy_loss_",
    _policy_loss_,
    mutates_args=("logits",),
    schema=f"(Tensor(a!) logits, Tensor active, {SCHEMA}) -> (Tensor, Tensor, Tensor, Tensor)",
)


@_OPERATOR.register_fake
def _(logits_NV: Tensor, active_N: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    grad_NV = logits_NV.new_empty(logits_NV.shape if arguments[-1] else 0)
    return *_fake_outputs(active_N), grad_NV


@_OPERATOR_IN_PLACE.register_fake
def _(logits_NV: Tensor, active_N: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    return _fake_outputs(active_N)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)  # else zeros for every output, gradients included
    ctx.num_inputs = len(inputs)
    ctx.save_for_backward(output[-1] if inputs[-1] else None)


def _backward(ctx: Any, loss_grad: Tensor, *unused: Any) -> tuple[Tensor | None, ...]:
    (grad_NV,) = scaled_gradients(loss_grad, ctx.saved_tensors, "policy_loss")
    return grad_NV, *(None for _ in range(ctx.num_inputs - 1))


_OPERATOR.register_autograd(_backward, setup_context=_setup_context)


class _InPlacePolicyLoss(torch.autograd.Function):
    """Operators with an autograd rule must not write to their inputs; a function around one may."""

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, active_N: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
        loss, *others = torch.ops.outcome_rl.policy_loss_(logits_NV, active_N, *arguments)
        ctx.num_inputs = 2 + len(arguments)
        ctx.save_for_backward(logits_NV)
        ctx.mark_non_differentiable(*others)
        return loss, *others

    @staticmethod
    def backward(ctx: Any, loss_grad: Tensor, *unused: Any) -> tuple[Tensor | None, ...]:
        (grad_NV,) = scaled_gradients(loss_grad, ctx.saved_tensors, "policy_loss", inplace=True)
        return grad_NV, *(None for _ in range(ctx.num_inputs - 1))
