"""Per-token log-probabilities and entropies straight from hidden states and the lm_head weight.

Shapes: N tokens, R of them computed, H hidden, V vocabulary. Fused, the forward pass takes one matrix product and reads
each logit once; the backward pass takes three more, the first to recompute the logits (see `chunked_head` and, for the
gradient of a row, `fused`). If the loss is known beforehand, use `linear_policy_loss`: it takes three in all.
Under `torch.compile` they are the operators `torch.ops.outcome_rl.linear_logprobs` and `linear_logprobs_backward`.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from outcome_rl_kernels.backends import Backend, Impl, choose
from outcome_rl_kernels.checks import FLOATS, as_mask, check_tensor, is_traced, refuse_second_derivatives, shape_text
from outcome_rl_kernels.loss.chunked_head import HeadGradients, LogitChunks, empty_gradients, rows_of_mask, spread
from outcome_rl_kernels.loss.given_ids import values_of_ids, write_gradients_of_ids
from outcome_rl_kernels.loss.inputs import check_head, check_labels, check_workspace, savable
from outcome_rl_kernels.loss.reference import capped, head_logits, reference_logprobs
from outcome_rl_kernels.loss.support.api import check_support, kept_logits_of_head, support_logprobs
from outcome_rl_kernels.loss.types import Head, LogitRows, LossSettings, Support, Wants, wants_of
from outcome_rl_kernels.loss.vocab_parallel import VocabShard, kernels_of, vocab_shard, whole_head


def linear_logprobs(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor | None,
    *,
    ids: Tensor | None = None,
    bias: Tensor | None = None,
    support: Support | tuple[Tensor, Tensor] | None = None,
    vocab_group: "torch.distributed.ProcessGroup | None" = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    mask: Tensor | None = None,
    return_entropy: bool = False,
    workspace_bytes: int | None = None,
    fp32_logits: bool = False,
    impl: Impl = "auto",
) -> tuple[Tensor, Tensor | None]:
    """Compute the log-probability of each label, and on request the entropy of its distribution, from hidden states.

    Equivalent to `log_softmax(logits / temperature, -1).gather(-1, labels[..., None])[..., 0]` with
    `logits = (hidden @ weight.T + bias).float()`, and with `softcap * tanh(logits / softcap)` in their place if there
    is a `softcap`.

    Args:
        hidden: (B, T, H) or (N, H); `hidden[t]` predicts `labels[t]`, so the caller shifts.
        weight: (V, H), the lm_head weight, in the dtype of `hidden`.
        labels: (B, T) or (N,) int64 in [0, V); any value where `mask` is False. None with `ids`.
        ids: (B, T, K) or (N, K) int64, such as a teacher's K most likely tokens: `logps` then has K + 1 columns, the
            log-probabilities of these tokens, normalised over the whole vocabulary, and of all other tokens together.
            An id that occurs twice counts once among the others. Not together with `support`.
        bias: (V,) or None.
        support: the tokens that the sampler kept, as for `linear_policy_loss`; the softmax is then over them only.
        vocab_group: ranks among which the vocabulary is sharded, as for `linear_policy_loss`.
        temperature: > 0, divides the logits.
        softcap: > 0, bounds the logits before the division; None (default) is no bound.
        mask: bool or integers 0 and 1 like `labels`; rows where it is False cost nothing and return 0. This
            synchronises with the GPU once, to know how many there are.
        return_entropy: also return `-sum_v p_v log p_v` in nats.
        workspace_bytes, fp32_logits: as for `linear_policy_loss`.
        impl: "reference" is plain PyTorch on all logits at once; "native" on the CPU (float32, bfloat16) and "triton"
            on a GPU (float32, bfloat16, float16) never hold more than a chunk of logits: one matrix product forward,
            and three backward, the first to recompute the chunk's logits; "auto" takes the fast one where it can.

    Returns:
        `(logps, entropies or None)`, both shaped like `labels`, or `logps` (..., K + 1) with `ids`; float32 (float64
        for float64 inputs), differentiable in `hidden`, `weight` and `bias`.

    Raises:
        TypeError, ValueError: an argument has the wrong type, dtype, shape, device or range. Labels out of range
            or out of their support raise on the CPU; on a GPU their log-probabilities are NaN, because checking them
            would synchronise.
    """
    check_tensor("hidden", hidden, FLOATS)
    settings = LossSettings(temperature=temperature, softcap=softcap)
    given = None if ids is None else _check_ids(ids, labels, hidden, support)
    labels = savable(check_tensor("labels", labels if given is None else given[..., 0], (torch.int64,), hidden.device))
    head = check_head(hidden, weight, bias, labels)
    check_workspace(workspace_bytes)
    tokens_N = labels.reshape(-1) if given is None else given.reshape(-1, given.shape[-1])
    mask_N = None if mask is None else savable(as_mask("mask", mask, "labels", labels)).reshape(-1)
    if support is not None:
        support = check_support(support, tokens_N, mask_N, weight.shape[0])
    chosen, _ = choose("linear_logprobs", impl, hidden.device, head.hidden.dtype)
    shard = vocab_shard(vocab_group, head.weight, support, chosen)
    if chosen == "reference" or support is not None:
        values = unchunked_logprobs(head, tokens_N, mask_N, support, temperature, softcap, fp32_logits, chosen)
    else:
        options = _Options(settings.temperature, settings.softcap, workspace_bytes, fp32_logits, chosen)
        values_XN = _LinearLogprobs.apply(*head, mask_N, tokens_N, options, shard)  # type: ignore[no-untyped-call]
        # Not unbound, whose results must not be changed in place.
        values = values_XN[0] if given is None else values_XN[:-1].t(), values_XN[-1]
    dtype = torch.promote_types(head.hidden.dtype, torch.float32)
    logps, entropies = (value.to(dtype).reshape(*labels.shape, *value.shape[1:]) for value in values)
    return logps, entropies if return_entropy else None


def _check_ids(ids: Tensor, labels: Tensor | None, hidden: Tensor, support: object) -> Tensor:
    """Return ids if they are (..., K), and neither labels nor a support is given beside them."""
    for name, other in (("labels", labels), ("support", support)):
        if other is not None:
            raise ValueError(f"{name} must be None with ids, which are over the whole vocabulary; leave it out")
    check_tensor("ids", ids, (torch.int64,), hidden.device)
    if ids.dim() != hidden.dim() or ids.shape[-1] == 0:
        raise ValueError(f"ids must have shape (..., K) with K >= 1 where hidden has (..., H); got {shape_text(ids)}")
    return savable(ids)


def unchunked_logprobs(
    head: Head,
    tokens_N: Tensor,
    active_N: Tensor | None,
    support: Support | None,
    temperature: float,
    softcap: float | None,
    fp32_logits: bool,
    impl: Backend,
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies by the reference or over a support, 0 on inactive tokens."""
    if support is not None and impl != "reference":
        return support_logprobs(head, tokens_N, active_N, support, temperature, softcap, impl)

    def logits_of(rows_R: Tensor) -> Tensor:
        logits_RV = capped(head_logits(head, rows_R, fp32_logits=fp32_logits), softcap)
        return logits_RV if support is None else kept_logits_of_head(logits_RV, support, tokens_N, rows_R)

    return reference_logprobs(logits_of, tokens_N, active_N, len(head.weight), temperature)


class _Options(NamedTuple):
    temperature: float
    softcap: float | None
    workspace_bytes: int | None
    fp32_logits: bool
    impl: str


class _LinearLogprobs(torch.autograd.Function):
    """Log-probabilities and entropies, (2, N), or (K + 2, N) of ids; eager code runs the operators' bodies directly."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        mask_N: Tensor | None,
        tokens_N: Tensor,
        options: _Options,
        shard: VocabShard,
    ) -> Tensor:
        ctx.save_for_backward(hidden_NH, weight, bias, mask_N, tokens_N)
        ctx.options, ctx.shard = options, shard
        if is_traced(hidden_NH) and shard.group is None:
            values_XN: Tensor = torch.ops.outcome_rl.linear_logprobs(
                hidden_NH, weight, bias, mask_N, tokens_N, *options
            )
            return values_XN
        return _values(Head(hidden_NH, weight, bias), mask_N, tokens_N, options, shard)

    @staticmethod
    def backward(ctx: Any, grads_XN: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives(grads_XN, "linear_logprobs")
        *head, mask_N, tokens_N = ctx.saved_tensors
        wants = wants_of(ctx)
        if is_traced(grads_XN) and ctx.shard.group is None:
            columns = grads_XN, *head, mask_N, tokens_N
            grads = torch.ops.outcome_rl.linear_logprobs_backward(*columns, *ctx.options, wants)
        else:
            grads = _gradients(grads_XN, Head(*head), mask_N, tokens_N, ctx.options, ctx.shard, wants)
        return *(grad if wanted else None for grad, wanted in zip(grads, wants, strict=True)), *[None] * 4


def _values(head: Head, mask_N: Tensor | None, tokens_N: Tensor, options: _Options, shard: VocabShard) -> Tensor:
    check_labels(tokens_N, mask_N, shard.vocabulary)
    head, tokens_R, rows_R = _computed(head, mask_N, tokens_N)
    values_XR = tokens_R.new_empty(_columns(tokens_R), len(tokens_R), dtype=torch.float32)
    kernels = kernels_of(options.impl, shard)
    for rows, logits_CV in _chunks(head, options, shard, Wants(False, False, False)):
        chunk = LogitRows(logits_CV, _labels(tokens_R)[rows], options.temperature)
        if tokens_R.dim() > 1:
            values_XR[:, rows] = values_of_ids(chunk, tokens_R[rows], kernels, shard).float()
            continue
        statistics = kernels.row_statistics(chunk)
        values_XR[0, rows], values_XR[1, rows] = statistics.logps_R, statistics.entropies_R
    return spread(values_XR, rows_R, len(tokens_N), dim=1)


def _gradients(
    grads_XN: Tensor,
    head: Head,
    mask_N: Tensor | None,
    tokens_N: Tensor,
    options: _Options,
    shard: VocabShard,
    wants: Wants,
) -> tuple[Tensor, Tensor, Tensor]:
    head, tokens_R, rows_R = _computed(head, mask_N, tokens_N)
    grads_XR = grads_XN if rows_R is None else grads_XN[:, rows_R]
    kernels = kernels_of(options.impl, shard)

    def over_chunks() -> HeadGradients:
        """Return the gradients; the logits end with the call."""
        chunks = _chunks(head, options, shard, wants)
        gradients = HeadGradients(head, wants, len(chunks))
        for rows, logits_CV in chunks:
            chunk, grads_XC = LogitRows(logits_CV, _labels(tokens_R)[rows], options.temperature), grads_XR[:, rows]
            grad_CV = chunks.gradients_of(logits_CV)
            if tokens_R.dim() > 1:
                write_gradients_of_ids(chunk, tokens_R[rows], grads_XC, grad_CV, kernels, shard)
            else:
                kernels.row_gradients(chunk, kernels.row_statistics(chunk), grads_XC[0], grads_XC[1], grad_CV)
            gradients.add(rows, chunks.before_cap_(grad_CV, logits_CV))
        return gradients

    hidden_grad, weight_grad, bias_grad = over_chunks().results()
    if wants.hidden:
        hidden_grad = spread(shard.summed(hidden_grad), rows_R, len(tokens_N), dim=0)
    return hidden_grad, weight_grad, bias_grad


def _computed(head: Head, mask_N: Tensor | None, tokens_N: Tensor) -> tuple[Head, Tensor, Tensor | None]:
    """Return the hidden states and tokens that the mask holds, and their indices, None for all."""
    rows_R = rows_of_mask(mask_N)
    if rows_R is None:
        return head._replace(hidden=head.hidden.contiguous()), tokens_N, None
    return head._replace(hidden=head.hidden[rows_R]), tokens_N[rows_R], rows_R


def _labels(tokens_N: Tensor) -> Tensor:
    """Return labels, or the first of several ids."""
    return tokens_N if tokens_N.dim() == 1 else tokens_N[:, 0]


def _columns(tokens_N: Tensor) -> int:
    return 2 if tokens_N.dim() == 1 else tokens_N.shape[1] + 2


def _chunks(head: Head, options: _Options, shard: VocabShard, wants: Wants) -> LogitChunks:
    return LogitChunks(
        head,
        options.workspace_bytes,
        wants=wants,
        fp32_logits=options.fp32_logits,
        widest=shard.widest,
        softcap=options.softcap,
    )


# --- torch.library

_ARGUMENTS = (
    "Tensor hidden, Tensor weight, Tensor? bias, Tensor? mask, Tensor tokens, float temperature, float? softcap, "
    "SymInt? workspace_bytes, bool fp32_logits, str impl"
)


_TAGS = (torch.Tag.cudagraph_unsafe,)  # with a mask they wait for the number of rows; a capture refuses that


@torch.library.custom_op("outcome_rl::linear_logprobs", mutates_args=(), schema=f"({_ARGUMENTS}) -> Tensor", tags=_TAGS)
def _forward(hidden_NH: Tensor, weight: Tensor, bias: Tensor | None, *arguments: Any) -> Tensor:
    mask_N, tokens_N, *options = arguments
    return _values(Head(hidden_NH, weight, bias), mask_N, tokens_N, _Options(*options), whole_head(weight))


@_forward.register_fake
def _(hidden_NH: Tensor, weight: Tensor, bias: Tensor | None, *arguments: Any) -> Tensor:
    tokens_N = arguments[1]  # len() would fix the length
    return hidden_NH.new_empty(_columns(tokens_N), tokens_N.shape[0], dtype=torch.float32)


@torch.library.custom_op(
    "outcome_rl::linear_logprobs_backward",
    mutates_args=(),
    schema=f"(Tensor grads, {_ARGUMENTS}, bool[] wants) -> (Tensor, Tensor, Tensor)",
    tags=_TAGS,
)
def _backward(
    grads_XN: Tensor, hidden_NH: Tensor, weight: Tensor, bias: Tensor | None, *arguments: Any
) -> tuple[Tensor, Tensor, Tensor]:
    mask_N, tokens_N, *options, wants = arguments
    head = Head(hidden_NH, weight, bias)
    return _gradients(grads_XN, head, mask_N, tokens_N, _Options(*options), whole_head(weight), Wants(*wants))


@_backward.register_fake
def _(grads_XN: Tensor, hidden_NH: Tensor, weight: Tensor, bias: Tensor | None, *arguments: Any) -> tuple[Tensor, ...]:
    *_, wants = arguments
    return empty_gradients(Head(hidden_NH, weight, bias), Wants(*wants))
