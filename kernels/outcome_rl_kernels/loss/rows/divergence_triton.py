"""The rows of a divergence in Triton: `csrc/divergence.cpp` has the formulas.

One kernel takes the sums of a row, or with them its gradient, each in one read of both models' logits. A row belongs to
one program.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from outcome_rl_kernels.loss.rows import triton as rows_triton
from outcome_rl_kernels.loss.rows.triton import expm1, log1p
from outcome_rl_kernels.loss.types import LogitRows

_SLACK = tl.constexpr(0.04)  # so that masses whose logarithms are rounded to bfloat16 sum to 1 at most
_LOADED = 16  # bytes a thread and model; more spill


@triton.jit
def _times(weight, value):
    """Return the product, 0 where the weight is, whatever the value."""
    return tl.where(weight == 0, 0.0, weight * value)


@triton.jit
def _terms(log_p, log_q, b, KIND: tl.constexpr):
    """Return parts of tokens in the divergence and in X, p times their slopes, p, and log((p + q) / 2) - slack."""
    up = log_p > log_q
    high = tl.where(up, log_p, log_q)
    low = tl.where(up, log_q, log_p)
    gap = tl.where(high == low, 0.0, high - low)  # 0 where both models forbid a token
    e = expm1(-gap)
    large = tl.exp(high)
    small = large * tl.exp(-gap)
    p = tl.where(up, large, small)
    q = tl.where(up, small, large)
    excess = tl.where(up, -large, large) * e
    delta = tl.where(up, gap, -gap)
    if KIND == 0:
        slope = _times(p, delta)
        value = slope - excess
        inner = value
    elif KIND == 1:
        slope = excess
        value = excess - _times(q, delta)
        inner = value * 0
    else:
        mixed = log1p(tl.where(up, b, 1 - b) * e)
        slope = _times(p, tl.where(up, -mixed, -gap - mixed))
        value = (1 - b) * slope + b * _times(q, tl.where(up, -gap - mixed, -mixed))
        inner = slope - b * excess
    return value, inner, slope, p, high + log1p(0.5 * e) - _SLACK


@triton.jit
def _columns(
    row_ptr, teacher_ptr, grad_row_ptr, columns, end, scales, b, factors, KIND: tl.constexpr, MASSES: tl.constexpr
):
    """Return the terms of both sums for the columns before `end`, and write their gradients, if there is room."""
    mask = columns < end
    x = tl.load(row_ptr + columns, mask=mask, other=float("-inf")).to(tl.float32)
    y = tl.load(teacher_ptr + columns, mask=mask, other=float("-inf")).to(tl.float32)
    log_p = (x - scales[0]) * scales[4] - scales[1]
    log_q = (y - scales[2]) * scales[5] - scales[3]
    value, inner, slope, p, mass = _terms(log_p, log_q, b, KIND)
    if grad_row_ptr is not None:
        tl.store(grad_row_ptr + columns, factors[0] * (slope - _times(p, factors[1])), mask=mask)
        if MASSES:
            tl.store(teacher_ptr + columns, mass, mask=mask)
    return value, inner


@triton.jit(do_not_specialize=["rows"])
def _divergence_kernel(
    logits_ptr, teacher_ptr, grad_ptr, labels_ptr, active_ptr, scales_ptr, sums_ptr, factors_ptr, rows, whole,
    vocabulary, stride_logits, stride_teacher, stride_grad, scale, inverse_temperature, teacher_inverse_temperature, b,
    KIND: tl.constexpr, MASSES: tl.constexpr, BLOCK_V: tl.constexpr, LOAD_V: tl.constexpr, BLOCKS: tl.constexpr,
    HAS_TAIL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    rows = rows.to(tl.int64)
    row_ptr = logits_ptr + row * stride_logits
    teacher_row_ptr = teacher_ptr + row * stride_teacher
    grad_row_ptr = None
    factors = (0.0, 0.0)
    if grad_ptr is not None:
        grad_row_ptr = grad_ptr + row * stride_grad
        factors = (tl.load(factors_ptr + row), tl.load(sums_ptr + rows + row))
    is_active = True
    if active_ptr is not None:
        is_active = tl.load(active_ptr + row) != 0
    if is_active:
        scales_ptr += row
        of_student = (tl.load(scales_ptr), tl.load(scales_ptr + rows))
        of_teacher = (tl.load(scales_ptr + 2 * rows), tl.load(scales_ptr + 3 * rows))
        scales = of_student + of_teacher + (inverse_temperature, teacher_inverse_temperature)
        values = tl.zeros((BLOCK_V,), tl.float32)
        inners = tl.zeros((BLOCK_V,), tl.float32)
        for start in range(0, whole, BLOCK_V):
            columns = start + tl.arange(0, BLOCK_V)
            value, inner = _columns(
                row_ptr, teacher_row_ptr, grad_row_ptr, columns, whole, scales, b, factors, KIND, MASSES
            )
            values += value
            inners += inner
        value_sum = tl.sum(values, axis=0)
        inner_sum = tl.sum(inners, axis=0)
        if HAS_TAIL:
            columns = whole + tl.arange(0, 16)
            value, inner = _columns(
                row_ptr, teacher_row_ptr, grad_row_ptr, columns, vocabulary, scales, b, factors, KIND, MASSES
            )
            value_sum += tl.sum(value, axis=0)
            inner_sum += tl.sum(inner, axis=0)
        if grad_ptr is None:
            tl.store(sums_ptr + row, value_sum)
            tl.store(sums_ptr + rows + row, inner_sum)
    elif grad_ptr is not None:
        for start in range(0, vocabulary, BLOCK_V):
            columns = start + tl.arange(0, BLOCK_V)
            tl.store(grad_row_ptr + columns, 0.0, mask=columns < vocabulary)


def divergence_rows(
    rows: LogitRows,
    scales_4R: Tensor,
    teacher_temperature: float,
    kind: int,
    mixture: float,
    sums_2R: Tensor | None = None,
    factors_R: Tensor | None = None,
    grad_RV: Tensor | None = None,
    *,
    masses: bool = False,
) -> Tensor:
    """As `cpu.divergence_rows`, for float32, bfloat16 or float16 logits with contiguous rows; in float32."""
    teacher_RV: Any = rows.teacher_RV
    launches: list[Tensor | None] = [] if grad_RV is None else [grad_RV]
    if sums_2R is None:
        sums_2R = torch.zeros(2, len(rows.logits_RV), dtype=torch.float32, device=rows.logits_RV.device)
        launches.insert(0, None)  # the sums come first
    for to_RV in launches:
        rows_triton.launch_rows(
            _divergence_kernel,
            rows,
            loaded=_LOADED,
            teacher_ptr=teacher_RV,
            grad_ptr=to_RV,
            scales_ptr=scales_4R,
            sums_ptr=sums_2R.float(),
            factors_ptr=factors_R,
            stride_teacher=teacher_RV.stride(0),
            stride_grad=0 if to_RV is None else to_RV.stride(0),
            teacher_inverse_temperature=1.0 / teacher_temperature,
            b=float(mixture),
            KIND=kind,
            MASSES=masses and to_RV is not None,
        )
    return sums_2R
