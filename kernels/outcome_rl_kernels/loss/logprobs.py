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
from outcome_rl_kernels.loss.given_ids import logprobs_of_ids
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
            An id that occurs twice counts once among the others. Not together with `support`. It
            takes more memory than a label: a float32 copy of a chunk's logits, and two gradients.
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
    labels_N, mask_N = labels.reshape(-1), None
    if mask is not None:
        mask_N = savable(as_mask("mask", mask, "labels", labels)).reshape(-1)
    if support is not None:
        support = check_support(support, labels_N, mask_N, weight.shape[0])
    chosen, _ = choose("linear_logprobs", impl, hidden.device, head.hidden.dtype)
    shard = vocab_shard(vocab_group, head.weight, support, chosen)
    if given is not None:
        ids_NK = given.reshape(-1, given.shape[-1])
        active_NK = None if mask_N is None else mask_N[:, None].expand(ids_NK.shape).reshape(-1)
        check_labels(ids_NK.reshape(-1), active_NK, shard.vocabulary, "ids")
        values = logprobs_of_ids(head, ids_NK, mask_N, settings, workspace_bytes, fp32_logits, chosen, shard)
    elif chosen == "reference" or support is not None:
        values = unchunked_logprobs(head, labels_N, mask_N, support, temperature, softcap, fp32_logits, chosen)
    else:
        options = _Options(temperature, softcap, workspace_bytes, fp32_logits, chosen)
        values_2N = _LinearLogprobs.apply(*head, mask_N, labels_N, options, shard)  # type: ignore[no-untyped-call]
        values = values_2N[0], values_2N[1]  # not unbound, whose results must not be changed in place
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
    labels_N: Tensor,
    active_N: Tensor | None,
    support: Support | None,
    temperature: float,
    softcap: float | None,
    fp32_logits: bool,
    impl: Backend,
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies by the reference or over a support, 0 on inactive tokens."""
    if support is not None and impl != "reference":
        return support_logprobs(head, labels_N, active_N, support, temperature, softcap, impl)

    def logits_of(rows_R: Tensor) -> Tensor:
        logits_RV = capped(head_logits(head, rows_R, fp32_logits=fp32_logits), softcap)
        return logits_RV if support is None else kept_logits_of_head(logits_RV, support, labels_N, rows_R)

    return reference_logprobs(logits_of, labels_N, active_N, len(head.weight), temperature)


class _Options(NamedTuple):
    temperature: float
    softcap: float | None
    workspace_bytes: int | None
    fp32_logits: bool
    impl: str


class _LinearLogprobs(torch.autograd.Function):
    """Log-probabilities and entropies, (2, N); eager code runs the bodies of the operators directly."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        mask_N: Tensor | None,
        labels_N: Tensor,
        options: _Options,
        shard: VocabShard,
    ) -> Tensor:
        ctx.save_for_backward(hidden_NH, weight, bias, mask_N, labels_N)
        ctx.options, ctx.shard = options, shard
        if is_traced(hidden_NH) and shard.group is None:
            values_2N: Tensor = torch.ops.outcome_rl.linear_logprobs(
                hidden_NH, weight, bias, mask_N, labels_N, *options
            )
            return values_2N
        return _values(Head(hidden_NH, weight, bias), mask_N, labels_N, options, shard)

    @staticmethod
    def backward(ctx: Any, grads_2N: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives(grads_2N, "linear_logprobs")
        *head, mask_N, labels_N = ctx.saved_tensors
        wants = wants_of(ctx)
        if is_traced(grads_2N) and ctx.shard.group is None:
            columns = grads_2N, *head, mask_N, labels_N
            grads = torch.ops.outcome_rl.linear_logprobs_backward(*columns, *ctx.options, wants)
        else:
            grads = _gradients(grads_2N, Head(*head), mask_N, labels_N, ctx.options, ctx.shard, wants)
        return *(grad if wanted else None for grad, wanted in zip(grads, wants, strict=True)), *[None] * 4


def _values(head: Head, mask_N: Tensor | None, labels_N: Tensor, options: _Options, shard: VocabShard) -> Tensor:
    check_labels(labels_N, mask_N, shard.vocabulary)
    rows_R = rows_of_mask(mask_N)
    hidden_RH, labels_R = head.hidden.contiguous(), labels_N
    if rows_R is not None:
        hidden_RH, labels_R = head.hidden[rows_R], labels_N[rows_R]
    values_2R = hidden_RH.new_empty(2, len(labels_R), dtype=torch.float32)
    kernels = kernels_of(options.impl, shard)
    for rows, logits_CV in _chunks(head._replace(hidden=hidden_RH), options, shard, Wants(False, False, False)):
        chunk = LogitRows(logits_CV, labels_R[rows], options.temperature)
        statistics = kernels.row_statistics(chunk)
        values_2R[0, rows], values_2R[1, rows] = statistics.logps_R, statistics.entropies_R
    return spread(values_2R, rows_R, len(labels_N), dim=1)


def _gradients(
    grads_2N: Tensor,
    head: Head,
    mask_N: Tensor | None,
    labels_N: Tensor,
    options: _Options,
    shard: VocabShard,
    wants: Wants,
) -> tuple[Tensor, Tensor, Tensor]:
    rows_R = rows_of_mask(mask_N)
    hidden_RH, labels_R, grads_2R = head.hidden.contiguous(), labels_N, grads_2N
    if rows_R is not None:
        hidden_RH, labels_R, grads_2R = head.hidden[rows_R], labels_N[rows_R], grads_2N[:, rows_R]
    head = head._replace(hidden=hidden_RH)
    kernels = kernels_of(options.impl, shard)

    def over_chunks() -> HeadGradients:
        """Return the gradients; the logits end with the call."""
        chunks = _chunks(head, options, shard, wants)
        gradients = HeadGradients(head, wants, len(chunks))
        for rows, logits_CV in chunks:
            grad_CV, chunk = chunks.gradients_of(logits_CV), LogitRows(logits_CV, labels_R[rows], options.temperature)
            logp_grads_C, entropy_grads_C = grads_2R[:, rows]
            kernels.row_gradients(chunk, kernels.row_statistics(chunk), logp_grads_C, entropy_grads_C, grad_CV)
            gradients.add(rows, chunks.before_cap_(grad_CV, logits_CV))
        return gradients

    hidden_grad, weight_grad, bias_grad = over_chunks().results()
    if wants.hidden:
        hidden_grad = spread(shard.summed(hidden_grad), rows_R, len(labels_N), dim=0)
    return hidden_grad, weight_grad, bias_grad


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
    "Tensor hidden, Tensor weight, Tensor? bias, Tensor? mask, Tensor labels, float temperature, float? softcap, "
    "SymInt? workspace_bytes, bool fp32_logits, str impl"
)


_TAGS = (torch.Tag.cudagraph_unsafe,)  # with a mask they wait for the number of rows; a capture refuses that


@torch.library.custom_op("outcome_rl::linear_logprobs", mutates_args=(), schema=f"({_ARGUMENTS}) -> Tensor", tags=_TAGS)
def _forward(hidden_NH: Tensor, weight: Tensor, bias: Tensor | None, *arguments: Any) -> Tensor:
    mask_N, labels_N, *options = arguments
    return _values(Head(hidden_NH, weight, bias), mask_N, labels_N, _Options(*options), whole_head(weight))


@_forward.register_fake
def _(hidden_NH: Tensor, *arguments: Any) -> Tensor:
    return hidden_NH.new_empty(2, hidden_NH.shape[0], dtype=torch.float32)  # len() would fix the length


@torch.library.custom_op(
    "outcome_rl::linear_logprobs_backward",
    mutates_args=(),
    schema=f"(Tensor grads, {_ARGUMENTS}, bool[] wants) -> (Tensor, Tensor, Tensor)",
    tags=_TAGS,
)
def _backward(
    grads_2N: Tensor, hidden_NH: Tensor, weight: Tensor, bias: Tensor | None, *arguments: Any
) -> tuple[Tensor, Tensor, Tensor]:
    mask_N, labels_N, *options, wants = arguments
    head = Head(hidden_NH, weight, bias)
    return _gradients(grads_2N, head, mask_N, labels_N, _Options(*options), whole_head(weight), Wants(*wants))


@_backward.register_fake
def _(grads_2N: Tensor, hidden_NH: Tensor, weight: Tensor, bias: Tensor | None, *arguments: Any) -> tuple[Tensor, ...]:
    *_, wants = arguments
    return empty_gradients(Head(hidden_NH, weight, bias), Wants(*wants))
