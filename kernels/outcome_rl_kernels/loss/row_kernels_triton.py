"""Passes over rows of logits in Triton: the token loss of each row and, in the same launch, its gradient.

Shapes: R rows (tokens), V vocabulary. With T the temperature, one program takes one row:

    m    = max_v x_v                        d_v  = (x_v - m) log2(e) / T
    S    = sum_v 2^d_v                      mean = sum_v 2^d_v d_v / S
    logp = (x_label - m) / T - ln S         entropy = ln S - ln(2) mean

    g = d loss / d logp,  e = d loss / d entropy             the formulas of `reference/policy_loss.py`
    d loss / d x_v = (g 1[v = label] - p_v (g + e ln(2) (d_v - mean))) / T,          p_v = 2^d_v / S

Nothing of size V is computed from a rounded log-sum-exp, and the gradient at the label, g (1 - p), is taken from
expm1(logp), so both keep float32's precision where the row is peaked. A logit of -inf has d_v 2^d_v = 0. A logit of NaN
or +inf makes S NaN, and with it all that the row gives. A label outside [0, V), whose logit is never loaded, makes the
row's logp, loss and gradient NaN.

Memory traffic of a row, in bytes: V * itemsize read from memory for the statistics and, with a gradient, V * its
itemsize written. The second read of the row should find it in the L2 cache, for which there are hints to the cache, and
1024 threads with more than 32 registers each, of which one multiprocessor of an H100 or H200 takes no second program:
at most 132 rows are under way, 34 MB of bfloat16 at V = 128256, against 50 MB of cache.

Each thread loads 16 bytes at a time and folds them into a maximum and sums of its own; threads meet only at the end of
the row. Rows without that alignment (V, stride or start no multiple of 16) are right but slower. All is deterministic:
a row belongs to one program, and its sums have one order.
"""

# The kernels are in Triton's language, which has no types.
# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from outcome_rl_kernels.loss.reference import LossSettings
from outcome_rl_kernels.loss.row_kernels import PolicyTokens, RowTerms
from outcome_rl_kernels.loss.terms_triton import expm1, kl_terms, policy_terms

_LOG2_E = 1.4426950408889634
_LN_2 = tl.constexpr(0.6931471805599453)
_LOWEST = tl.constexpr(-3.4028234663852886e38)  # of float32; a maximum starts here, since -inf - -inf is NaN
_LEAST_EXPONENT = tl.constexpr(-127.0)  # 2^-127 is 0 beside a sum of at least 1


@triton.jit
def _row_statistics(row_ptr, vocabulary, scale, EVICTION: tl.constexpr, BLOCK_V: tl.constexpr, LOAD_V: tl.constexpr):
    """m, S and mean of a row."""
    LANES: tl.constexpr = BLOCK_V // LOAD_V
    maxima = tl.full((LANES,), _LOWEST, tl.float32)
    sums = tl.zeros((LANES,), tl.float32)
    weighted = tl.zeros((LANES,), tl.float32)
    for start in range(0, vocabulary, BLOCK_V):
        columns = start + tl.arange(0, BLOCK_V)
        x = tl.load(row_ptr + columns, mask=columns < vocabulary, other=float("-inf"), eviction_policy=EVICTION)
        x = tl.reshape(x.to(tl.float32), (LANES, LOAD_V))
        raised = tl.maximum(maxima, tl.max(x, axis=1))
        drop = tl.maximum((maxima - raised) * scale, _LEAST_EXPONENT)
        factor = tl.exp2(drop)
        d = (x - raised[:, None]) * scale
        terms = tl.exp2(d)
        weighted = (weighted + sums * drop) * factor + tl.sum(terms * tl.maximum(d, _LEAST_EXPONENT), axis=1)
        sums = sums * factor + tl.sum(terms, axis=1)
        maxima = raised
    maximum = tl.max(maxima, axis=0)
    drop = tl.maximum((maxima - maximum) * scale, _LEAST_EXPONENT)
    factor = tl.exp2(drop)
    total = tl.sum(sums * factor, axis=0)
    return maximum, total, tl.sum((weighted + sums * drop) * factor, axis=0) / total


@triton.jit
def _load_label_logit(row_ptr, label, vocabulary):
    """The label's logit; NaN for a label outside [0, V). To be called before the statistics, whose barriers keep every
    thread's load ahead of the stores that may overwrite the row."""
    is_valid = (label >= 0) & (label < vocabulary)
    return tl.where(is_valid, tl.load(row_ptr + label, mask=is_valid, other=0).to(tl.float32), float("nan"))


@triton.jit
def _logp_and_entropy(label_logit, maximum, total, mean, inverse_temperature):
    log_total = tl.log(total)
    return (label_logit - maximum) * inverse_temperature - log_total, log_total - _LN_2 * mean


@triton.jit
def _write_gradient(
    row_ptr, grad_row_ptr, vocabulary, label, label_logit, maximum, total, mean, logp, logp_grad, entropy_grad,
    scale, inverse_temperature, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """d (logp_grad * logp + entropy_grad * entropy) / d x_v, where entropy_grad may be None; may overwrite the row."""
    constant = -logp_grad * inverse_temperature / total
    at_label = -logp_grad * expm1(logp) * inverse_temperature
    if entropy_grad is not None:
        slope = -entropy_grad * _LN_2 * inverse_temperature / total
        constant -= slope * mean
        label_d = (label_logit - maximum) * scale
        at_label += tl.exp2(label_d) * slope * (tl.maximum(label_d, _LEAST_EXPONENT) - mean)
    label = label.to(tl.int32)  # a comparison of 64-bit numbers takes two instructions
    for start in range(0, vocabulary, BLOCK_V):
        columns = start + tl.arange(0, BLOCK_V)
        is_column = columns < vocabulary
        x = tl.load(row_ptr + columns, mask=is_column, other=0.0, eviction_policy="evict_first").to(tl.float32)
        d = (x - maximum) * scale
        coefficient = constant
        if entropy_grad is not None:
            coefficient = constant + slope * tl.maximum(d, _LEAST_EXPONENT)
        tl.store(grad_row_ptr + columns, tl.where(columns == label, at_label, tl.exp2(d) * coefficient), mask=is_column)


@triton.jit(do_not_specialize=["rows"])
def _policy_rows_kernel(
    logits_ptr,
    grad_ptr,
    terms_ptr,
    labels_ptr,
    advantages_ptr,
    weights_ptr,
    bonuses_ptr,
    without_bonus_ptr,
    without_policy_ptr,
    ref_logps_ptr,
    old_logps_ptr,
    rollout_weights_ptr,
    sequence_log_ratios_ptr,
    active_ptr,
    rows,
    vocabulary,
    stride_logits,
    stride_grad,
    scale,
    inverse_temperature,
    ratio_low,
    ratio_high,
    delta,
    beta,
    entropy_coef,
    log_ratio_clamp,
    kl_clamp,
    KL_PENALTY: tl.constexpr,
    BLOCK_V: tl.constexpr,
    LOAD_V: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * stride_logits
    terms_ptr += row
    rows = rows.to(tl.int64)
    if active_ptr is not None:  # noqa: SIM102 - known when compiled, the next one is not
        if tl.load(active_ptr + row) == 0:
            for i in tl.static_range(7):
                tl.store(terms_ptr + i * rows, 0.0)
            if grad_ptr is not None:
                for start in range(0, vocabulary, BLOCK_V):
                    columns = start + tl.arange(0, BLOCK_V)
                    tl.store(grad_ptr + row * stride_grad + columns, 0.0, mask=columns < vocabulary)
            return
    label = tl.load(labels_ptr + row)
    label_logit = _load_label_logit(row_ptr, label, vocabulary)
    weight = tl.load(weights_ptr + row)
    advantage = tl.load(advantages_ptr + row)
    if bonuses_ptr is not None:
        bonus = tl.load(bonuses_ptr + row)
        if without_bonus_ptr is not None:
            bonus = tl.where(tl.load(without_bonus_ptr + row), 0.0, bonus)
        advantage += bonus
    is_without_policy = tl.load(without_policy_ptr + row) if without_policy_ptr is not None else None
    ref_logp = tl.load(ref_logps_ptr + row) if ref_logps_ptr is not None else None
    old_logp = tl.load(old_logps_ptr + row) if old_logps_ptr is not None else None
    rollout_weight = tl.load(rollout_weights_ptr + row) if rollout_weights_ptr is not None else None
    sequence_log_ratio = tl.load(sequence_log_ratios_ptr + row) if sequence_log_ratios_ptr is not None else None

    EVICTION: tl.constexpr = "evict_first" if grad_ptr is None else "evict_last"
    maximum, total, mean = _row_statistics(row_ptr, vocabulary, scale, EVICTION, BLOCK_V, LOAD_V)
    logp, entropy = _logp_and_entropy(label_logit, maximum, total, mean, inverse_temperature)

    loss, logp_grad, ratio, clipped = policy_terms(
        logp, advantage, rollout_weight, old_logp, sequence_log_ratio, is_without_policy, ratio_low, ratio_high, delta,
        log_ratio_clamp,
    )  # fmt: skip
    kl = 0.0
    if ref_logp is not None:
        kl, kl_grad = kl_terms(logp, ref_logp, log_ratio_clamp, kl_clamp, KL_PENALTY)
        if beta is not None:
            loss += beta * kl
            logp_grad += beta * kl_grad
    # An answer token drops its policy term, but logits or a label that are broken must show even there.
    weight = tl.where(logp == logp, weight, float("nan"))
    entropy_grad = None
    if entropy_coef is not None:
        loss -= entropy_coef * entropy
        entropy_grad = -entropy_coef * weight

    tl.store(terms_ptr, logp)
    tl.store(terms_ptr + rows, entropy)
    tl.store(terms_ptr + 2 * rows, loss * weight)
    tl.store(terms_ptr + 3 * rows, kl)
    tl.store(terms_ptr + 4 * rows, ratio)
    tl.store(terms_ptr + 5 * rows, clipped)
    tl.store(terms_ptr + 6 * rows, 1.0 if is_without_policy is None else 1.0 - is_without_policy.to(tl.float32))
    if grad_ptr is not None:
        _write_gradient(
            row_ptr, grad_ptr + row * stride_grad, vocabulary, label, label_logit, maximum, total, mean, logp,
            logp_grad * weight, entropy_grad, scale, inverse_temperature, BLOCK_V,
        )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def _logprob_rows_kernel(
    logits_ptr,
    labels_ptr,
    logps_ptr,
    entropies_ptr,
    vocabulary,
    stride_logits,
    scale,
    inverse_temperature,
    BLOCK_V: tl.constexpr,
    LOAD_V: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * stride_logits
    label_logit = _load_label_logit(row_ptr, tl.load(labels_ptr + row), vocabulary)
    maximum, total, mean = _row_statistics(row_ptr, vocabulary, scale, "evict_first", BLOCK_V, LOAD_V)
    logp, entropy = _logp_and_entropy(label_logit, maximum, total, mean, inverse_temperature)
    tl.store(logps_ptr + row, logp)
    tl.store(entropies_ptr + row, entropy)


@triton.jit
def _logprob_rows_backward_kernel(
    logits_ptr,
    grad_ptr,
    labels_ptr,
    logp_grads_ptr,
    entropy_grads_ptr,
    vocabulary,
    stride_logits,
    stride_grad,
    scale,
    inverse_temperature,
    BLOCK_V: tl.constexpr,
    LOAD_V: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * stride_logits
    label = tl.load(labels_ptr + row)
    label_logit = _load_label_logit(row_ptr, label, vocabulary)
    logp_grad = tl.load(logp_grads_ptr + row)
    entropy_grad = tl.load(entropy_grads_ptr + row) if entropy_grads_ptr is not None else None
    maximum, total, mean = _row_statistics(row_ptr, vocabulary, scale, "evict_last", BLOCK_V, LOAD_V)
    logp, _ = _logp_and_entropy(label_logit, maximum, total, mean, inverse_temperature)
    logp_grad = tl.where(logp == logp, logp_grad, float("nan"))
    _write_gradient(
        row_ptr, grad_ptr + row * stride_grad, vocabulary, label, label_logit, maximum, total, mean, logp, logp_grad,
        entropy_grad, scale, inverse_temperature, BLOCK_V,
    )  # fmt: skip


def policy_rows(logits_RV: Tensor, tokens: PolicyTokens, settings: LossSettings, grad_RV: Tensor | None) -> Tensor:
    """The terms of `RowTerms`, (7, R), and the gradient of the sum of the losses by the logits, in one launch.

    Args:
        logits_RV: float32, bfloat16 or float16, before the division by the temperature; each row contiguous.
        tokens: inputs of the same rows.
        settings: `loss_agg` is not read, it is in `weights_R`; nor is `importance_level`, it is in
            `sequence_log_ratios_R`.
        grad_RV: where the gradient goes: the logits themselves, or a tensor of any of these dtypes. None: no gradient.
    """
    terms_7R = torch.empty(len(RowTerms._fields), len(logits_RV), device=logits_RV.device)
    _launch(
        _policy_rows_kernel,
        logits_RV,
        settings.temperature,
        grad_ptr=grad_RV,
        terms_ptr=terms_7R,
        labels_ptr=tokens.labels_R,
        advantages_ptr=tokens.advantages_R,
        weights_ptr=tokens.weights_R,
        bonuses_ptr=tokens.bonuses_R,
        without_bonus_ptr=tokens.answer_mask_R if settings.answer_mask_mode == "bonus" else None,
        without_policy_ptr=tokens.answer_mask_R if settings.answer_mask_mode == "policy" else None,
        ref_logps_ptr=tokens.ref_logps_R,
        old_logps_ptr=tokens.old_logps_R,
        rollout_weights_ptr=tokens.rollout_weights_R,
        sequence_log_ratios_ptr=tokens.sequence_log_ratios_R,
        active_ptr=tokens.active_R,
        rows=len(logits_RV),
        stride_grad=0 if grad_RV is None else grad_RV.stride(0),
        ratio_low=float(1 - settings.epsilon_low),
        ratio_high=float(1 + settings.epsilon_high),
        delta=_float(settings.delta),
        beta=_float(settings.beta or None),
        entropy_coef=_float(settings.entropy_coef or None),
        log_ratio_clamp=_float(settings.log_ratio_clamp),
        kl_clamp=_float(settings.kl_clamp),
        KL_PENALTY=settings.kl_penalty,
    )
    return terms_7R


def logprob_rows(logits_RV: Tensor, labels_R: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probability of each label and entropy of each row, float32 (R,), of `softmax(logits / temperature)`.

    Each logit is read once. Arguments as for `policy_rows`.
    """
    logps_R, entropies_R = torch.empty(2, len(logits_RV), device=logits_RV.device)
    _launch(
        _logprob_rows_kernel,
        logits_RV,
        temperature,
        labels_ptr=labels_R,
        logps_ptr=logps_R,
        entropies_ptr=entropies_R,
    )
    return logps_R, entropies_R


def logprob_rows_backward(
    logits_RV: Tensor,
    labels_R: Tensor,
    temperature: float,
    logp_grads_R: Tensor,
    entropy_grads_R: Tensor | None,
    grad_RV: Tensor,
) -> None:
    """Write the gradient by the logits of a function of their log-probabilities and entropies.

    Args:
        logp_grads_R, entropy_grads_R: float32 derivatives of that function; None is zero.
        grad_RV: as for `policy_rows`, and the other arguments as well.
    """
    _launch(
        _logprob_rows_backward_kernel,
        logits_RV,
        temperature,
        grad_ptr=grad_RV,
        labels_ptr=labels_R,
        logp_grads_ptr=logp_grads_R,
        entropy_grads_ptr=entropy_grads_R,
        stride_grad=grad_RV.stride(0),
    )


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)  # Triton would compile anew for an integer


def _launch(kernel: Any, logits_RV: Tensor, temperature: float, **arguments: Any) -> None:
    """Launch one program a row, with what every kernel needs of the logits, and vectors made contiguous."""
    rows, vocabulary = logits_RV.shape
    if rows == 0:
        return
    stride = logits_RV.stride(0)
    is_aligned = vocabulary % 16 == stride % 16 == logits_RV.data_ptr() % 16 == 0  # what lets Triton load 16 bytes
    threads = 128 if vocabulary <= 8192 else 1024 if is_aligned else 512
    for name, value in arguments.items():
        if isinstance(value, Tensor) and value.dim() == 1:
            arguments[name] = value.contiguous()
    for name, matrix in (("logits", logits_RV), ("grad", arguments.get("grad_ptr"))):
        if matrix is not None and vocabulary > 1 and matrix.stride(1) != 1:
            raise ValueError(
                f"{name} must be contiguous along the vocabulary; got strides {matrix.stride()}. "
                f"Use {name}.contiguous()"
            )
    with torch.cuda.device_of(logits_RV):  # type: ignore[no-untyped-call]  # Triton launches on the current device
        kernel[(rows,)](
            logits_ptr=logits_RV,
            vocabulary=vocabulary,
            stride_logits=stride,
            scale=_LOG2_E / temperature,
            inverse_temperature=1.0 / temperature,
            BLOCK_V=threads * (16 if is_aligned else 4),
            LOAD_V=16 // logits_RV.element_size() if is_aligned else 1,
            num_warps=threads // (64 if torch.version.hip else 32),
            **arguments,
        )
