"""Per-token log-probabilities and entropies straight from hidden states and the lm_head weight.

Shapes: N tokens, R of them computed, H hidden, V vocabulary. Fused, the forward pass takes one matrix product and reads
each logit once; the backward pass takes three more, the first to have the logits back (see `chunked_head` and, for the
gradient of a row, `fused`). A loss that is known beforehand is better off with `linear_policy_loss`: three in all. They
are the operators `torch.ops.outcome_rl.linear_logprobs` and `linear_logprobs_backward`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from outcome_rl_kernels.backends import Impl, choose
from outcome_rl_kernels.checks import FLOATS, check_number, check_shape_of, check_tensor
from outcome_rl_kernels.loss.chunked_head import HeadGradients, LogitChunks, empty_gradients, rows_of_mask, spread
from outcome_rl_kernels.loss.fused import refuse_second_derivatives
from outcome_rl_kernels.loss.inputs import LogitRows, autocast, check_head, check_labels, check_workspace
from outcome_rl_kernels.loss.reference import head_logits, reference_logprobs
from outcome_rl_kernels.loss.support import Support, check_support, kept_logits_of_head, support_logprobs
from outcome_rl_kernels.loss.vocab_parallel import VocabShard, check_vocab_group, kernels_of, vocab_shard


def linear_logprobs(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    bias: Tensor | None = None,
    support: Support | tuple[Tensor, Tensor] | None = None,
    vocab_group: "torch.distributed.ProcessGroup | None" = None,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    return_entropy: bool = False,
    workspace_bytes: int | None = None,
    fp32_logits: bool = False,
    impl: Impl = "auto",
) -> tuple[Tensor, Tensor | None]:
    """Compute the log-probability of each label, and on request the entropy of its distribution, from hidden states.

    Equivalent to `log_softmax(logits / temperature, -1).gather(-1, labels[..., None])[..., 0]` with
    `logits = (hidden @ weight.T + bias).float()`.

    Args:
        hidden: (B, T, H) or (N, H); `hidden[t]` predicts `labels[t]`, so the caller shifts.
        weight: (V, H), the lm_head weight, in the dtype of `hidden`.
        labels: (B, T) or (N,) int64 in [0, V); any value where `mask` is False.
        bias: (V,) or None.
        support: the tokens that the sampler kept, as for `linear_policy_loss`; the softmax is then over them alone.
        vocab_group: ranks among which the vocabulary is cut, as for `linear_policy_loss`.
        temperature: > 0, divides the logits.
        mask: bool like `labels`; rows where it is False cost nothing and return 0. A GPU is waited for once, to know
            how many there are.
        return_entropy: also return `-sum_v p_v log p_v` in nats.
        workspace_bytes, fp32_logits: as for `linear_policy_loss`.
        impl: "reference" is plain PyTorch on all logits at once; "native" on the CPU (float32, bfloat16) and "triton"
            on a GPU (float32, bfloat16, float16) never hold more than a chunk of logits: one matrix product forward,
            and three backward, the first to have the chunk's logits again; "auto" takes the fast one where it can.

    Returns:
        `(logps, entropies or None)`, both shaped like `labels`, float32 (float64 for float64 inputs), differentiable in
        `hidden`, `weight` and `bias`.

    Raises:
        TypeError, ValueError: an argument has the wrong type, dtype, shape, device or range. Labels out of range
            or out of their support raise on the CPU; on a GPU their log-probabilities are NaN, because checking them
            would synchronise.
    """
    check_tensor("hidden", hidden, FLOATS)
    if not check_number("temperature", temperature) > 0:
        raise ValueError(f"temperature must be > 0; got {temperature}")
    check_tensor("labels", labels, (torch.int64,), hidden.device)
    check_head(hidden, weight, bias, labels)
    hidden_NH, weight, bias = autocast(hidden.reshape(-1, hidden.shape[-1]), weight, bias)
    check_workspace(workspace_bytes)
    labels_N, mask_N = labels.reshape(-1), None
    if mask is not None:
        check_tensor("mask", mask, (torch.bool,), hidden.device)
        mask_N = check_shape_of("mask", mask, "labels", labels).reshape(-1)
    if support is not None:
        support = check_support(support, labels_N, mask_N, weight.shape[0])
    chosen, _ = choose("linear_logprobs", impl, hidden.device, hidden_NH.dtype)
    if vocab_group is not None:
        check_vocab_group(vocab_group, support, chosen, hidden)
    if chosen == "reference":

        def logits_of(rows_R: Tensor) -> Tensor:
            logits_RV = head_logits(hidden_NH[rows_R], weight, bias, fp32_logits=fp32_logits)
            return logits_RV if support is None else kept_logits_of_head(logits_RV, support, labels_N, rows_R)

        active_N = torch.ones_like(labels_N, dtype=torch.bool) if mask_N is None else mask_N
        values = reference_logprobs(logits_of, labels_N, active_N, weight.shape[0], temperature)
    elif support is not None:
        found = support_logprobs(hidden_NH, weight, bias, labels_N, mask_N, support, temperature, chosen)
        values = found[0].float(), found[1].float()
    elif vocab_group is not None:
        shard = vocab_shard(vocab_group, len(weight), weight.device)
        options = temperature, workspace_bytes, fp32_logits, chosen
        values = _ShardedLogprobs.apply(hidden_NH, weight, bias, mask_N, labels_N, options, shard)  # type: ignore[no-untyped-call]
    else:
        values = torch.ops.outcome_rl.linear_logprobs(
            hidden_NH, weight, bias, mask_N, labels_N, temperature, workspace_bytes, fp32_logits, chosen
        )
    logps, entropies = (value_N.reshape(labels.shape) for value_N in values)
    return logps, entropies if return_entropy else None


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
    impl: str,
) -> tuple[Tensor, Tensor]:
    options = temperature, workspace_bytes, fp32_logits, impl
    return _values(hidden_NH, weight, bias, mask_N, labels_N, options, None)


_Options = tuple[float, int | None, bool, str]  # temperature, workspace_bytes, fp32_logits, impl


def _values(
    hidden_NH: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    mask_N: Tensor | None,
    labels_N: Tensor,
    options: _Options,
    shard: VocabShard | None,
) -> tuple[Tensor, Tensor]:
    temperature, workspace_bytes, fp32_logits, impl = options
    check_labels(labels_N, mask_N, weight.shape[0] if shard is None else shard.vocabulary)
    rows_R = rows_of_mask(mask_N)
    hidden_RH, labels_R = hidden_NH.contiguous(), labels_N
    if rows_R is not None:
        hidden_RH, labels_R = hidden_NH[rows_R], labels_N[rows_R]
    values_2R = hidden_NH.new_empty(2, len(labels_R), dtype=torch.float32)
    kernels = kernels_of(impl, shard)
    widest = None if shard is None else shard.widest
    chunks = LogitChunks(hidden_RH, weight, bias, workspace_bytes, fp32_logits=fp32_logits, widest=widest)
    for rows, logits_CV in chunks:
        values_2R[0, rows], values_2R[1, rows], _ = kernels.row_statistics(
            LogitRows(logits_CV, labels_R[rows], temperature)
        )
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
    impl: str,
    wants_hidden: bool,
    wants_weight: bool,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    tensors = logp_grads_N, entropy_grads_N, hidden_NH, weight, bias, mask_N, labels_N
    options, wants = (temperature, workspace_bytes, fp32_logits, impl), (wants_hidden, wants_weight, wants_bias)
    return _head_gradients(*tensors, options, None, wants)


def _head_gradients(
    logp_grads_N: Tensor,
    entropy_grads_N: Tensor,
    hidden_NH: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    mask_N: Tensor | None,
    labels_N: Tensor,
    options: _Options,
    shard: VocabShard | None,
    wants: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    temperature, workspace_bytes, fp32_logits, impl = options
    rows_R = rows_of_mask(mask_N)
    hidden_RH, columns = hidden_NH.contiguous(), (labels_N, logp_grads_N, entropy_grads_N)
    if rows_R is not None:
        hidden_RH, columns = hidden_NH[rows_R], (labels_N[rows_R], logp_grads_N[rows_R], entropy_grads_N[rows_R])
    kernels = kernels_of(impl, shard)

    def over_chunks() -> HeadGradients:
        """Return the gradients; the logits end with the call."""
        labels_R, logp_grads_R, entropy_grads_R = columns
        widest = None if shard is None else shard.widest
        chunks = LogitChunks(hidden_RH, weight, bias, workspace_bytes, fp32_logits=fp32_logits, widest=widest)
        gradients = HeadGradients(hidden_RH, weight, bias, wants, len(chunks))
        for rows, logits_CV in chunks:
            grad_CV, chunk = chunks.gradients_of(logits_CV), LogitRows(logits_CV, labels_R[rows], temperature)
            grads = logp_grads_R[rows], entropy_grads_R[rows]
            kernels.row_gradients(chunk, kernels.row_statistics(chunk), *grads, grad_CV)
            gradients.add(rows, grad_CV)
        return gradients

    hidden_grad, weight_grad, bias_grad = over_chunks().results()
    if wants[0]:
        if shard is not None:
            hidden_grad = shard.summed(hidden_grad)
        hidden_grad = spread(hidden_grad, rows_R, len(hidden_NH), dim=0)
    return hidden_grad, weight_grad, bias_grad


@_gradients.register_fake
def _(
    logp_grads_N: Tensor, entropy_grads_N: Tensor, hidden_NH: Tensor, weight: Tensor, bias: Tensor | None, *others: Any
) -> tuple[Tensor, ...]:
    return empty_gradients(hidden_NH, weight, bias, others[-3:])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.others = inputs[5:]


def _backward(ctx: Any, logp_grads_N: Tensor, entropy_grads_N: Tensor) -> tuple[Tensor | None, ...]:
    refuse_second_derivatives(logp_grads_N, "linear_logprobs")
    wants = ctx.needs_input_grad[:3]
    grads = torch.ops.outcome_rl.linear_logprobs_backward(
        logp_grads_N, entropy_grads_N, *ctx.saved_tensors, *ctx.others, *wants
    )
    return *(grad if wanted else None for grad, wanted in zip(grads, wants, strict=True)), *[None] * 6


_forward.register_autograd(_backward, setup_context=_setup_context)


class _ShardedLogprobs(torch.autograd.Function):
    """`linear_logprobs` of a shard: an operator cannot take a process group."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(*inputs[:5])
        ctx.others = inputs[5:]
        return _values(*inputs)

    @staticmethod
    def backward(ctx: Any, logp_grads_N: Tensor, entropy_grads_N: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives(logp_grads_N, "linear_logprobs")
        wants = ctx.needs_input_grad[:3]
        grads = _head_gradients(logp_grads_N, entropy_grads_N, *ctx.saved_tensors, *ctx.others, *[wants])
        return *(grad if wanted else None for grad, wanted in zip(grads, wants, strict=True)), *[None] * 4
