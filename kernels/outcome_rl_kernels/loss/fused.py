"""The fused losses: from hidden states in three matrix products, and from logits in one read and one write of them.

Shapes: N tokens, R of them computed, C rows of a chunk, H hidden, V vocabulary.

The gradient of the loss with respect to a row's logits is known as soon as the row's log-sum-exp is: with
`g = d loss / d logp` and `e = d loss / d entropy`,

    d loss / d logit_v = g * (1[v = label] - p_v) / temperature - e * p_v * (log p_v + entropy) / temperature.

So the gradients are taken in the forward pass, chunk by chunk:

    logits_CV = hidden_CH @ weight.T              product 1
    logp_C, entropy_C                             row statistics
    loss_C, g_C, e_C                              `aggregate.token_loss`, and autograd over it
    logits_CV <- d loss / d logits_CV             row gradients
    d hidden_CH = logits_CV @ weight              product 2
    d weight   += logits_CV.T @ hidden_CH         product 3

and the backward pass only scales them. Nothing is recomputed, with one exception: a formula that needs whole sequences
needs the statistics of all chunks before any gradient, which costs product 1 once more where there are several. On a
GPU, one kernel does the three steps in the middle for the default formula.

The losses are the operators `torch.ops.outcome_rl.linear_policy_loss` and `policy_loss`, so
`torch.compile(fullgraph=True)` keeps them whole. Eager code runs their bodies directly: the bookkeeping of an operator
with so many arguments takes as long as a small batch.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from outcome_rl_kernels.backends import Backend, kernels_for
from outcome_rl_kernels.checks import is_traced, refuse_second_derivatives
from outcome_rl_kernels.cpu_memory import empty
from outcome_rl_kernels.loss.aggregate import is_default, token_loss, total
from outcome_rl_kernels.loss.chunked_head import HeadGradients, LogitChunks, empty_gradients, rows_of_mask, spread
from outcome_rl_kernels.loss.inputs import check_labels
from outcome_rl_kernels.loss.operands import SCHEMA, batch_of, flat, operator_types, recorded, schema_of
from outcome_rl_kernels.loss.rows.api import RowKernels
from outcome_rl_kernels.loss.rows.divergence import DivergenceRows, by_mass
from outcome_rl_kernels.loss.sampled.api import SampledGradients, Sampling
from outcome_rl_kernels.loss.types import (
    Head,
    LogitRows,
    RowGradients,
    RowStatistics,
    Teacher,
    TokenBatch,
    Wants,
    in_dtype,
    joined,
    select,
)
from outcome_rl_kernels.loss.vocab_parallel import VocabShard, kernels_of, whole_head

Result = tuple[Tensor, Tensor, Tensor]  # loss, log-probabilities (N,), entropies (N,)


class Options(NamedTuple):
    """Choices of a call of `linear_policy_loss` that no formula reads."""

    # Whether to find the active tokens, which synchronises with the GPU. If not, all tokens are computed, and hidden
    # states of inactive ones must be finite.
    compacts: bool
    impl: Backend
    workspace_bytes: int | None  # see `LogitChunks`
    fp32_logits: bool  # likewise
    sample_below: float  # threshold of `sampled`; 0 takes whole gradients of logits
    sample_seed: int


def fused_linear_policy_loss(
    head: Head, batch: TokenBatch, options: Options, shard: VocabShard, teacher: Teacher | None = None
) -> tuple[Result, Tensor]:
    """Return the loss of the active tokens among N, with log-probabilities and entropies, 0 at the others.

    Args:
        head: of a dtype that the row kernels take.
        shard: the part of the vocabulary that the head covers.
        teacher: with it, the log-probability of a token is the negative divergence from its teacher.

    Returns:
        The result, and `SampledGradients.kept`: zeros where dense products were taken, empty without a threshold.
    """
    wants = Wants(*(torch.is_grad_enabled() and x is not None and x.requires_grad for x in head))
    batch, scale = _within_float16(batch, head.weight.dtype, sums=True)
    loss, values_2N, kept_2 = _LinearPolicyLoss.apply(  # type: ignore[no-untyped-call]
        *head, options, wants, batch, shard, teacher or Teacher()
    )
    return (loss if scale is None else loss * scale, *values_2N.unbind()), kept_2


def fused_policy_loss(logits_NV: Tensor, batch: TokenBatch, *, impl: Backend, inplace: bool) -> Result:
    """Return the loss of the active tokens among N, with log-probabilities and entropies, 0 at the others.

    Args:
        logits_NV: of a dtype that the row kernels take; a layout without contiguous rows costs a copy. Inactive rows
            are not read and get gradient 0.
        inplace: the gradient may overwrite the logits; it does where their rows are contiguous.
    """
    wants_grad = torch.is_grad_enabled() and logits_NV.requires_grad
    overwrites = inplace and wants_grad and logits_NV.is_contiguous()
    batch, scale = _within_float16(batch, logits_NV.dtype, sums=False)
    loss, values_2N = _PolicyLoss.apply(logits_NV, batch, impl, wants_grad, overwrites)  # type: ignore[no-untyped-call]
    return loss if scale is None else loss * scale, *values_2N.unbind()


def _within_float16(batch: TokenBatch, dtype: torch.dtype, *, sums: bool) -> tuple[TokenBatch, Tensor | None]:
    """Return a batch whose gradients float16 can hold, and the factor of their loss; other dtypes need none.

    The forward pass rounds the gradients before the loss is scaled. With weights near 1 / N, gradients of logits would
    end below float16's smallest number, 6e-8; with a largest weight of at least 1 / 32 only probabilities below 2e-6
    do. Larger weights stay as they are. Where gradients are `sums` over tokens, weights that add up to more than 1024
    are made smaller, down to a largest one of 1 / 32: sums over a million tokens still fit. The backward pass
    multiplies by the factor, a power of 2, and a loss scale, in float32.
    """
    if dtype != torch.float16 or batch.weights.numel() == 0:
        return batch, None
    active = batch.inputs.active
    weights = batch.weights if active is None else batch.weights.where(active, 0)
    most = (weights.sum() / 2048).clamp(min=0.5) if sums else 0.5
    bound = (16 * weights.amax()).clamp(max=most)
    power = (bound.view(torch.int32) & 0x7F800000).view(torch.float32)  # at most `bound`; compiled divisions round
    scale = 2 * power.where(power > 0, 0.5)
    return batch._replace(weights=batch.weights / scale), scale


# --- autograd


class _LinearPolicyLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        options: Options,
        wants: Wants,
        batch: TokenBatch,
        shard: VocabShard,
        teacher: Teacher,
    ) -> tuple[Tensor, Tensor, Tensor]:
        head = Head(hidden_NH, weight, bias)
        if is_traced(hidden_NH) and shard.group is None:
            loss, values_2N, kept_2, *grads = torch.ops.outcome_rl.linear_policy_loss(
                *head, *options, wants, *teacher, *flat(batch)
            )
        else:
            loss, values_2N, kept_2, *grads = _linear_policy_loss(head, options, wants, batch, shard, teacher)
        ctx.save_for_backward(*(grad if wanted else None for grad, wanted in zip(grads, wants, strict=True)))
        ctx.mark_non_differentiable(values_2N, kept_2)
        return loss, values_2N, kept_2

    @staticmethod
    def backward(ctx: Any, loss_grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        return *_scaled(loss_grad, ctx.saved_tensors, "linear_policy_loss"), *[None] * 5


class _PolicyLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits_NV: Tensor, batch: TokenBatch, impl: Backend, wants_grad: bool, overwrites: bool
    ) -> tuple[Tensor, Tensor]:
        if is_traced(logits_NV):
            loss, values_2N, grad_NV = torch.ops.outcome_rl.policy_loss(logits_NV, impl, wants_grad, *flat(batch))
        else:
            loss, values_2N, grad_NV = _policy_loss(logits_NV, batch, impl, wants_grad, overwrites)
        ctx.save_for_backward(grad_NV if wants_grad else None)
        ctx.mark_non_differentiable(values_2N)
        return loss, values_2N

    @staticmethod
    def backward(ctx: Any, loss_grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        return *_scaled(loss_grad, ctx.saved_tensors, "policy_loss"), *[None] * 4


def _scaled(loss_grad: Tensor, grads: Sequence[Tensor | None], op: str) -> list[Tensor | None]:
    """Return `loss_grad` (0-d) times each gradient; None stays None.

    The saved gradients are scaled in place and handed over, unless `retain_graph=True` keeps them for another
    pass. Where the factor is 1, nothing is read: a pass over d weight would cost a tenth of the whole on the CPU.
    """
    refuse_second_derivatives(loss_grad, op)
    if is_traced(loss_grad):
        return [None if grad is None else (grad * loss_grad[None]).to(grad.dtype) for grad in grads]
    # Whether `retain_graph=True` is set; no public function says so. Without this call every pass would have to copy.
    keep = torch._C._autograd._get_current_graph_task_keep_graph()

    def scaled(grad: Tensor) -> Tensor:
        grad = grad.clone() if keep else grad.detach()
        # Neither way rounds the factor to the gradient's dtype: 1 / 3 is off by 2 in 1000 in bfloat16, and float16 ends
        # below the usual loss scales.
        if grad.device.type == "cpu":
            return grad if loss_grad == 1 else torch.mul(grad, loss_grad.item(), out=grad)
        from outcome_rl_kernels.loss.rows.scale_triton import scale_  # not above: triton is heavy

        scale_(grad, loss_grad)  # reading the factor would synchronise
        return grad

    return [None if grad is None else scaled(grad) for grad in grads]


# --- bodies of the operators


def _linear_policy_loss(
    head: Head, options: Options, wants: Wants, batch: TokenBatch, shard: VocabShard, teacher: Teacher
) -> tuple[Tensor, ...]:
    """Loss, (2, N) log-probabilities and entropies, (2,) kept, and gradients of hidden states, weight and bias."""
    active = batch.inputs.active
    check_labels(batch.labels, active, shard.vocabulary)
    rows_R, total = rows_of_mask(active) if options.compacts else None, len(head.hidden)
    head = head._replace(hidden=head.hidden.contiguous() if rows_R is None else head.hidden[rows_R])
    if rows_R is not None:
        batch = select(batch, rows_R)
        teacher = teacher if teacher.hidden is None else teacher._replace(hidden=teacher.hidden[rows_R])
    if options.compacts:
        batch = batch._replace(inputs=batch.inputs._replace(active=None))
    columns_3R, gradients = _over_chunks(head, options, wants, batch, shard, rows_R, teacher)
    loss, values_2R = _sum(columns_3R, batch.inputs.active)
    kept_2 = loss.new_empty(0)  # without sampling there is nothing to launch
    if options.sample_below > 0:
        kept_2 = gradients.kept() if isinstance(gradients, SampledGradients) else loss.new_zeros(2)
    hidden_grad, weight_grad, bias_grad = gradients.results()
    if wants.hidden:
        hidden_grad = spread(shard.summed(hidden_grad), rows_R, total, dim=0)
    return loss, spread(values_2R, rows_R, total, dim=1), kept_2, hidden_grad, weight_grad, bias_grad


def _over_chunks(
    head: Head,
    options: Options,
    wants: Wants,
    batch: TokenBatch,
    shard: VocabShard,
    rows_R: Tensor | None,
    teacher: Teacher,
) -> tuple[Tensor, HeadGradients | SampledGradients]:
    """Return losses times weights, logps and entropies, (3, R), and the gradients; the logits end with the call."""
    kernels, settings = kernels_of(options.impl, shard), batch.inputs.settings
    divergences = None
    if teacher.head is not None:
        divergences = DivergenceRows(kernels, options.impl, teacher, shard.group, masses=options.sample_below > 0)
    chunks = LogitChunks(
        head,
        options.workspace_bytes,
        wants=wants,
        fp32_logits=options.fp32_logits,
        widest=shard.widest,
        softcap=settings.softcap,
        teacher=teacher,
    )
    labelled = LogitRows(head.hidden, batch.labels, settings.temperature, batch.inputs.active)
    gradients: HeadGradients | SampledGradients
    if options.sample_below > 0 and any(wants) and len(chunks) > 0:
        index_R = torch.arange(len(head.hidden), device=head.hidden.device) if rows_R is None else rows_R
        how = Sampling(options.impl, options.sample_below, options.sample_seed, index_R, shard.first, settings.softcap)
        gradients = SampledGradients(head, wants, how)
    else:
        gradients = HeadGradients(head, wants, len(chunks))
    whole = None
    if batch.inputs.sequences is not None and len(chunks) > 1:
        statistics = [kernels.row_statistics(_rows(logits_CV, labelled, rows)) for rows, logits_CV in chunks]
        whole = _terms(joined(statistics), batch, wants_grad=any(wants))
        if not any(wants):
            return whole.columns_3R, gradients
    parts = [head.hidden.new_zeros(3, 0, dtype=torch.float32)] if len(chunks) == 0 else []
    for rows, logits_CV in chunks:
        chunk = batch if len(chunks) == 1 else select(batch, rows)
        logits = _rows(logits_CV, labelled, rows)._replace(teacher_RV=chunks.teacher_logits(rows))
        room_CV = chunks.gradients_of(logits_CV) if any(wants) else None
        terms = None
        if divergences is not None:
            columns_3C = divergences.loss_rows(logits, chunk, room_CV)
        elif whole is None and not isinstance(gradients, SampledGradients):
            columns_3C = _loss_of_rows(logits, chunk, kernels, room_CV)
        else:
            terms = (
                _terms(kernels.row_statistics(logits), chunk, wants_grad=True) if whole is None else select(whole, rows)
            )
            columns_3C = terms.columns_3R
        parts.append(columns_3C)
        if room_CV is None:
            continue
        if isinstance(gradients, SampledGradients):
            of = by_mass(columns_3C) if terms is None else _row_gradients(terms, kernels, logits)
            if gradients.add_rows(rows, logits, of, room_CV if terms is None else None):
                continue
            gradients = HeadGradients(head, wants, len(chunks))
        if terms is not None:
            _write_gradients(logits, kernels, terms, room_CV)
        gradients.add(rows, chunks.before_cap_(room_CV, logits_CV))
    return torch.cat(parts, dim=1) if len(parts) > 1 else parts[0], gradients


def _policy_loss(
    logits_NV: Tensor, batch: TokenBatch, impl: Backend, wants_grad: bool, overwrites: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, (2, N) log-probabilities and entropies, and the gradient of the logits."""
    active = batch.inputs.active
    check_labels(batch.labels, active, logits_NV.shape[1])
    rows_NV, grad_NV = logits_NV.contiguous(), None
    if overwrites:
        grad_NV = logits_NV
        torch.autograd.graph.increment_version(logits_NV)  # so that autograd notices if another gradient needs them
    elif wants_grad:
        grad_NV = rows_NV  # a copy made by .contiguous() holds the gradient
        if rows_NV is logits_NV:
            grad_NV = empty(logits_NV.shape, logits_NV.dtype, logits_NV.device)
    rows = LogitRows(rows_NV, batch.labels, batch.inputs.settings.temperature, active)
    loss, values_2N = _sum(_loss_of_rows(rows, batch, kernels_for("rows", impl), grad_NV), active)
    return loss, values_2N, logits_NV.new_empty(0) if grad_NV is None else grad_NV


class _Terms(NamedTuple):
    """Statistics of R rows, the losses times their weights, and the derivatives of their sum; None is zero."""

    statistics: RowStatistics
    losses_R: Tensor
    logp_grads_R: Tensor | None
    entropy_grads_R: Tensor | None

    @property
    def columns_3R(self) -> Tensor:
        return torch.stack([self.losses_R, self.statistics.logps_R, self.statistics.entropies_R])


def _loss_of_rows(rows: LogitRows, batch: TokenBatch, kernels: RowKernels, grad_RV: Tensor | None) -> Tensor:
    """Losses times weights, log-probabilities and entropies of rows, (3, R); their gradient goes to `grad_RV`."""
    if kernels.default_loss_rows is not None and is_default(batch):
        return kernels.default_loss_rows(rows, batch, grad_RV)
    terms = _terms(kernels.row_statistics(rows), batch, wants_grad=grad_RV is not None)
    if grad_RV is not None:
        _write_gradients(rows, kernels, terms, grad_RV)
    return terms.columns_3R


def _rows(logits_CV: Tensor, all_rows: LogitRows, rows: slice) -> LogitRows:
    """Return the logits of a chunk, with its part of the labels of all rows."""
    active_R = all_rows.active_R
    return all_rows._replace(
        logits_RV=logits_CV,
        labels_R=all_rows.labels_R[rows],
        active_R=None if active_R is None else active_R[rows],
    )


def _write_gradients(rows: LogitRows, kernels: RowKernels, terms: _Terms, grad_RV: Tensor) -> None:
    assert terms.logp_grads_R is not None
    kernels.row_gradients(rows, terms.statistics, terms.logp_grads_R, terms.entropy_grads_R, grad_RV)


def _row_gradients(terms: _Terms, kernels: RowKernels, rows: LogitRows) -> RowGradients:
    assert terms.logp_grads_R is not None
    statistics, log_sums_R = terms.statistics, kernels.log_sums(terms.statistics, rows.temperature)
    grads = terms.logp_grads_R, terms.entropy_grads_R
    return RowGradients(log_sums_R, statistics.logps_R, statistics.entropies_R, *grads)


def _terms(statistics: RowStatistics, batch: TokenBatch, *, wants_grad: bool) -> _Terms:
    logps_R, entropies_R = statistics.logps_R, statistics.entropies_R
    batch = in_dtype(batch, logps_R.dtype)  # once, not at every operation
    if not wants_grad:
        return _Terms(statistics, token_loss(logps_R, entropies_R, batch) * batch.weights, None, None)
    leaves = logps_R.detach().requires_grad_(), entropies_R.detach().requires_grad_()
    with recorded():
        losses_R = token_loss(*leaves, batch)
        logp_grads_R, entropy_grads_R = torch.autograd.grad(losses_R, leaves, batch.weights, allow_unused=True)
    if logp_grads_R is None:
        logp_grads_R = torch.zeros_like(logps_R)
    return _Terms(statistics, losses_R.detach() * batch.weights, logp_grads_R, entropy_grads_R)


def _sum(columns_3R: Tensor, active: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the loss, 0-d, and log-probabilities and entropies, from the result of `_loss_of_rows`."""
    losses_R, logps_R, _ = columns_3R
    return total(losses_R, logps_R, active).float(), columns_3R[1:].float()


# --- torch.library


def _register(
    name: str,
    arguments: str,
    body: Callable[..., Any],
    gradients: Callable[..., Sequence[Tensor]],
    results: int,
    tags: tuple[torch.Tag, ...] = (),
) -> None:
    """Register an operator with its fake: loss, (2, N) values, and what `gradients` returns, all without data."""
    schema = f"({arguments}, {SCHEMA}) -> ({', '.join(['Tensor'] * results)})"
    operator = torch.library.custom_op(f"outcome_rl::{name}", body, mutates_args=(), schema=schema, tags=tags)

    def fake(rows_NX: Tensor, *others: Any) -> tuple[Tensor, ...]:
        loss, values_2N = (rows_NX.new_empty(shape, dtype=torch.float32) for shape in ((), (2, rows_NX.shape[0])))
        return loss, values_2N, *gradients(rows_NX, *others)

    operator.register_fake(fake)


def _linear_operator(hidden_NH: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> tuple[Tensor, ...]:
    head, options, wants, teacher, batch = _linear_arguments(hidden_NH, weight, bias, *others)
    return _linear_policy_loss(head, options, wants, batch_of(*batch), whole_head(weight), teacher)


def _linear_gradients(hidden_NH: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> tuple[Tensor, ...]:
    head, options, wants, *_ = _linear_arguments(hidden_NH, weight, bias, *others)
    kept = hidden_NH.new_empty(2 if options.sample_below > 0 else 0, dtype=torch.float32)
    return kept, *empty_gradients(head, wants)


def _linear_arguments(
    hidden_NH: Tensor, weight: Tensor, bias: Tensor | None, *others: Any
) -> tuple[Head, Options, Wants, Teacher, Sequence[Any]]:
    head, (count, end) = Head(hidden_NH, weight, bias), (len(Options._fields), len(Teacher._fields))
    options, (wants, *others_) = Options(*others[:count]), others[count:]
    return head, options, Wants(*wants), Teacher(*others_[:end]), others_[end:]


def _logits_operator(logits_NV: Tensor, impl: Backend, wants_grad: bool, *batch: Any) -> tuple[Tensor, ...]:
    return _policy_loss(logits_NV, batch_of(*batch), impl, wants_grad, overwrites=False)


def _logits_gradients(logits_NV: Tensor, impl: Backend, wants_grad: bool, *batch: Any) -> tuple[Tensor, ...]:
    return (logits_NV.new_empty(logits_NV.shape if wants_grad else 0),)


_register(
    "linear_policy_loss",
    f"Tensor hidden, Tensor weight, Tensor? bias, {schema_of(operator_types(Options))}, bool[] wants, "
    + schema_of({f"teacher_{name}": kind for name, kind in operator_types(Teacher).items()}),
    _linear_operator,
    _linear_gradients,
    results=6,
    tags=(torch.Tag.cudagraph_unsafe,),  # it may wait for the number of rows; a capture refuses that
)
_register("policy_loss", "Tensor logits, str impl, bool wants_grad", _logits_operator, _logits_gradients, results=3)
