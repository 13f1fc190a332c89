"""Log-probabilities over the tokens that a sampler kept (top-k, top-p, min-p), from the kept rows of the head only.

Shapes: N tokens (positions), E entries of all supports (the kept tokens of every position), H hidden, V vocabulary.

    logit_e   = hidden[row_e] . weight[id_e] + bias[id_e]            `kept_logits`: the rows of kept tokens
    log p_e   = log_softmax(logit / temperature) over the entries of a position
    logp_n    = log p_e of the label's entry,   entropy_n = -sum_e p_e log p_e

    d logit_e = (g (1[id_e = label] - p_e) - e p_e (log p_e + entropy_n)) / temperature
    d hidden  = sum of d logit_e weight[id_e] over the entries of a position            `segment_sums`
    d weight  = sum of d logit_e hidden[row_e] over the entries of a token              `segment_sums`

`g` and `e` are the gradients of logp and entropy. The logits are float32, whatever the operands, and the softmax is in
float64: its E numbers are few. Entries are sorted by token once, which finds duplicates and gives the gradient of the
weight one order of summation, without atomics. A position with one kept token has log-probability 0 and no gradient,
and its row of the head is not read. Rows of inactive positions are not read either.
"""

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from outcome_rl_kernels.checks import check_tensor, shape_text
from outcome_rl_kernels.loss import support_cpu
from outcome_rl_kernels.loss.chunked_head import empty_gradients
from outcome_rl_kernels.loss.fused import refuse_second_derivatives
from outcome_rl_kernels.loss.row_kernels import LEAST, gradient_of_tokens
from outcome_rl_kernels.loss.types import Head, Support, Wants, wants_of


def check_support(given: Any, labels_N: Tensor, active_N: Tensor | None, vocabulary: int) -> Support:
    """Return the pair `given` if it has an entry for the label of every active token.

    Values are checked on the CPU only: on a GPU the check would synchronise, so its log-probabilities are NaN instead.
    """
    if not isinstance(given, tuple) or len(given) != 2:
        raise TypeError(f"support must be a pair (offsets, token_ids) of tensors; got {type(given).__name__}")
    support = Support(*given)
    for name, value in zip(("support offsets", "support token_ids"), support, strict=True):
        check_tensor(name, value, (torch.int64,), labels_N.device)
    offsets, token_ids = support
    if offsets.shape != (len(labels_N) + 1,) or token_ids.dim() != 1:
        raise ValueError(
            f"support must have offsets of shape (N + 1,) = ({len(labels_N) + 1},), one token of labels after another, "
            f"and token_ids of shape (E,); got {shape_text(offsets)} and {shape_text(token_ids)}"
        )
    if labels_N.device.type != "cpu" or torch.compiler.is_compiling():
        return support
    if offsets[0] != 0 or offsets[-1] != len(token_ids) or (offsets.diff() < 0).any():
        raise ValueError(f"support offsets must rise from 0 to E = {len(token_ids)}; got {offsets}")
    if ((token_ids < 0) | (token_ids >= vocabulary)).any():
        bad = int(((token_ids < 0) | (token_ids >= vocabulary)).nonzero()[0])
        raise ValueError(
            f"support token_ids must lie in [0, {vocabulary}); got {int(token_ids[bad])} at position {bad}"
        )
    missing_N = ~_holds_label(support, _rows(support), labels_N)
    if active_N is not None:
        missing_N &= active_N
    if missing_N.any():
        position = int(missing_N.nonzero()[0])
        kept = token_ids[offsets[position] : offsets[position + 1]]
        raise ValueError(
            f"support must hold the label of every active token; got label {int(labels_N[position])} at flat position "
            f"{position}, which kept {kept}. Take the support from the engine that sampled, with its temperature and "
            "after its filters, or set mask = False there"
        )
    return support


def kept_logits_of_head(logits_RV: Tensor, support: Support, labels_N: Tensor, rows_R: Tensor) -> Tensor:
    """Return the logits of positions `rows_R` with -inf for tokens that are not kept: the specification.

    A position without its label gets NaN.
    """
    rows_E = _rows(support)
    is_kept_NV = torch.zeros(len(labels_N), logits_RV.shape[1], dtype=torch.bool, device=logits_RV.device)
    is_kept_NV[rows_E, support.token_ids] = True
    holds_R = _holds_label(support, rows_E, labels_N)[rows_R]
    return logits_RV.masked_fill(~is_kept_NV[rows_R], -torch.inf).masked_fill(~holds_R[:, None], torch.nan)


def support_logprobs(
    head: Head, labels_N: Tensor, active_N: Tensor | None, support: Support, temperature: float, impl: str
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of the labels and entropies over the supports, (N,) float64, 0 on inactive tokens.

    Both are differentiable, once, in hidden states, weight and bias; see `linear_logprobs`.
    """
    values_2N = torch.ops.outcome_rl.support_logprobs(*head, labels_N, active_N, *support, temperature, impl)[0]
    return values_2N[0], values_2N[1]


def _rows(support: Support) -> Tensor:
    """Return the position of each entry, (E,)."""
    positions = torch.arange(len(support.offsets) - 1, device=support.offsets.device)
    return positions.repeat_interleave(support.offsets.diff(), output_size=len(support.token_ids))


def _holds_label(support: Support, rows_E: Tensor, labels_N: Tensor) -> Tensor:
    is_label_E = support.token_ids == labels_N[rows_E]
    return torch.zeros_like(labels_N).index_add_(0, rows_E, is_label_E.long()) > 0


class _Entries(NamedTuple):
    """The entries, in the form that the kernels take."""

    rows_E: Tensor
    ids_E: Tensor  # token ids; -1 for entries that are not computed
    order_E: Tensor  # entries sorted by token, then by position


def _entries(support: Support, active_N: Tensor | None, vocabulary: int) -> tuple[_Entries, Tensor]:
    """Return the entries, and which of them are duplicates, (E,) bool."""
    ids_E, rows_E, lengths_N = support.token_ids, _rows(support), support.offsets.diff()
    sorted_keys_E, order_E = (ids_E * len(lengths_N) + rows_E).sort()
    repeats_E = torch.zeros_like(ids_E, dtype=torch.bool)
    repeats_E[1:] = sorted_keys_E[1:] == sorted_keys_E[:-1]
    is_duplicate_E = torch.zeros_like(repeats_E).scatter_(0, order_E, repeats_E)
    is_computed_N = lengths_N > 1 if active_N is None else active_N & (lengths_N > 1)
    is_computed_E = is_computed_N[rows_E] & ~is_duplicate_E & (ids_E >= 0) & (ids_E < vocabulary)
    return _Entries(rows_E, ids_E.where(is_computed_E, -1), order_E), is_duplicate_E


def _token_offsets(token_ids: Tensor, vocabulary: int) -> Tensor:
    """Return the bounds of each token's entries in `order_E`, (V + 1,); ids out of range are outside of them."""
    counts = token_ids.new_zeros(vocabulary + 2)
    return counts.index_add_(0, (token_ids + 1).clamp(0, vocabulary + 1), torch.ones_like(token_ids)).cumsum(0)[:-1]


def _log_softmax(
    logits_E: Tensor, is_duplicate_E: Tensor, rows_E: Tensor, support: Support, labels_N: Tensor
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies of positions, (2, N), and log-probabilities of entries, (E,)."""
    lengths_N = support.offsets.diff()
    logits_E = logits_E.masked_fill(is_duplicate_E, -torch.inf)
    maxima_N = torch.segment_reduce(logits_E, "max", lengths=lengths_N, unsafe=True)
    shifted_E = logits_E - maxima_N[rows_E]
    terms_E = shifted_E.exp()
    is_label_E = (support.token_ids == labels_N[rows_E]) & ~is_duplicate_E
    columns_E3 = torch.stack([terms_E, terms_E * shifted_E.clamp(min=LEAST), shifted_E.where(is_label_E, 0)], dim=1)
    sums_N, weighted_N, labels_shifted_N = torch.segment_reduce(
        columns_E3, "sum", lengths=lengths_N, unsafe=True
    ).unbind(dim=1)
    log_sums_N = sums_N.log()
    holds_N = _holds_label(support, rows_E, labels_N)
    logps_N = (labels_shifted_N - log_sums_N).where(holds_N, torch.nan)
    return torch.stack([logps_N, log_sums_N - weighted_N / sums_N]), shifted_E - log_sums_N[rows_E]


class SupportKernels(Protocol):
    """Gathers of rows of contiguous tables: `support_cpu` (C++) and `support_triton` (GPU) offer them."""

    def kept_logits(self, hidden_NH: Tensor, weight: Tensor, rows_E: Tensor, ids_E: Tensor) -> Tensor:
        """Return `hidden[rows] . weight[ids]` of each entry, (E,) float32; 0 where the id is negative."""

    def segment_sums(self, table: Tensor, index_E: Tensor, coefficients_E: Tensor, offsets: Tensor) -> Tensor:
        """Return for each segment of entries the sum of `coefficient * table[index]`, (S, H) in the table's dtype.

        Args:
            index_E: rows of the table; entries with a negative one are left out.
            coefficients_E: float32.
            offsets: (S + 1,) bounds of the segments.
        """


def support_kernels(impl: str) -> SupportKernels:
    if impl == "native":
        return support_cpu
    from outcome_rl_kernels.loss import support_triton  # not above: triton is heavy, and on Linux only

    return support_triton


@torch.library.custom_op("outcome_rl::support_logprobs", mutates_args=())
def _forward(
    hidden_NH: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels_N: Tensor,
    active_N: Tensor | None,
    offsets: Tensor,
    token_ids: Tensor,
    temperature: float,
    impl: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """(2, N) log-probabilities and entropies; (E,) log-probabilities of entries and (3, E) `_Entries` for backward."""
    support = Support(offsets, token_ids)
    entries, is_duplicate_E = _entries(support, active_N, weight.shape[0])
    logits_E = (
        support_kernels(impl)
        .kept_logits(hidden_NH.contiguous(), weight.contiguous(), entries.rows_E, entries.ids_E)
        .double()
    )
    is_valid_E = (token_ids >= 0) & (token_ids < weight.shape[0])
    if bias is not None:
        logits_E += bias.double()[token_ids.where(is_valid_E, 0)]
    # Single kept tokens and inactive positions are not computed; their logits only have to be finite.
    logits_E = logits_E.where(entries.ids_E >= 0, 0.0).where(is_valid_E, torch.nan) / temperature
    values_2N, log_probs_E = _log_softmax(logits_E, is_duplicate_E, entries.rows_E, support, labels_N)
    if active_N is not None:
        values_2N = values_2N.where(active_N, 0.0)
    return values_2N, log_probs_E, torch.stack(entries)


@_forward.register_fake
def _(hidden_NH: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    token_ids = arguments[5]
    values_2N = hidden_NH.new_empty(2, hidden_NH.shape[0], dtype=torch.float64)
    return (
        values_2N,
        token_ids.new_empty(token_ids.shape, dtype=torch.float64),
        token_ids.new_empty(3, *token_ids.shape),
    )


@torch.library.custom_op("outcome_rl::support_logprobs_backward", mutates_args=())
def _gradients(
    grads_2N: Tensor,
    values_2N: Tensor,
    log_probs_E: Tensor,
    entries_3E: Tensor,
    hidden_NH: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels_N: Tensor,
    offsets: Tensor,
    token_ids: Tensor,
    temperature: float,
    impl: str,
    wants: list[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    entries, kernels, wanted = _Entries(*entries_3E.unbind()), support_kernels(impl), Wants(*wants)
    logp_grads_E, entropy_grads_E = (grads_2N / temperature)[:, entries.rows_E].unbind()
    at_label_E = entries.ids_E == labels_N[entries.rows_E]
    entropies_E = values_2N[1][entries.rows_E]
    grads_E = gradient_of_tokens(log_probs_E, at_label_E, logp_grads_E, entropy_grads_E, entropies_E).float()
    hidden_grad, weight_grad, bias_grad = (weight.new_empty(0) for _ in range(3))
    if wanted.hidden:
        hidden_grad = kernels.segment_sums(weight.contiguous(), entries.ids_E, grads_E, offsets)
    if wanted.weight or wanted.bias:
        bounds = _token_offsets(token_ids, weight.shape[0])
        index_E = entries.rows_E.where(entries.ids_E >= 0, -1)[entries.order_E]
        sorted_grads_E = grads_E[entries.order_E]
    if wanted.weight:
        weight_grad = kernels.segment_sums(hidden_NH.contiguous(), index_E, sorted_grads_E, bounds)
    if wanted.bias:
        ones_N1 = torch.ones_like(hidden_NH[:, :1]).contiguous()
        bias_grad = kernels.segment_sums(ones_N1, index_E, sorted_grads_E, bounds)[:, 0].clone()
    return hidden_grad, weight_grad, bias_grad


@_gradients.register_fake
def _(
    grads_2N: Tensor,
    values_2N: Tensor,
    log_probs_E: Tensor,
    entries_3E: Tensor,
    hidden_NH: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *others: Any,
) -> tuple[Tensor, ...]:
    *_, wants = others
    return empty_gradients(Head(hidden_NH, weight, bias), Wants(*wants))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    hidden_NH, weight, bias, labels_N, _, offsets, token_ids, *ctx.others = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(*output, hidden_NH, weight, bias, labels_N, offsets, token_ids)


def _backward(ctx: Any, grads_2N: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    refuse_second_derivatives(grads_2N, "the loss over a support")
    wants = wants_of(ctx)
    grads = torch.ops.outcome_rl.support_logprobs_backward(grads_2N, *ctx.saved_tensors, *ctx.others, wants)
    return *(grad if wanted else None for grad, wanted in zip(grads, wants, strict=True)), *[None] * 6


_forward.register_autograd(_backward, setup_context=_setup_context)
