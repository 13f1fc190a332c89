"""Columns of a batch: checks, rows by group, and the copy to a device.

Shapes: N responses in groups; B groups of equal size n.
"""

from collections.abc import Hashable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outcome_rl.outcomes.functions import has_nan, plain


def group_indices(question_ids: Sequence[str], group_ids: Sequence[Hashable] | None) -> NDArray[np.int64]:
    """Index the groups in order of appearance, one of each question for None; check that each is of one question."""
    # One tensor differs from another with the same number, and NaN from itself.
    group_ids = question_ids if group_ids is None else [plain(group_id) for group_id in group_ids]
    if any(map(has_nan, group_ids)):
        raise ValueError("group_ids must be equal within a group; got NaN, which is not equal to itself")
    if not question_ids or len(group_ids) != len(question_ids):
        raise ValueError(
            "question_ids and group_ids must have one entry per response, and at least one; got "
            f"{len(question_ids)} and {len(group_ids)}"
        )
    index_of: dict[Hashable, int] = {}
    question_of: dict[Hashable, str] = {}
    for question_id, group_id in zip(question_ids, group_ids, strict=True):
        index_of.setdefault(group_id, len(index_of))
        if question_of.setdefault(group_id, question_id) != question_id:
            raise ValueError(
                f"group_ids must name groups of one question each; group {group_id!r} has responses to "
                f"{question_of[group_id]!r} and to {question_id!r}"
            )
    return np.array([index_of[group_id] for group_id in group_ids])


def rows_by_size(groups_N: NDArray[np.int64]) -> tuple[Tensor, list[tuple[int, int]]]:
    """Return the rows ordered by the size of their groups, (N,), and the shapes (B, n) that they fill in turn."""
    order_N, sizes = np.argsort(groups_N, kind="stable"), np.bincount(groups_N)
    order_N = order_N[np.argsort(sizes[groups_N[order_N]], kind="stable")]
    return torch.from_numpy(order_N), [(int((sizes == n).sum()), int(n)) for n in np.unique(sizes)]


def move(columns: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Copy columns (N,) of any dtype to a device in one transfer; the host waits only for one from a GPU."""
    away = [column for column in columns if column.device != device]
    if not away:
        return list(columns)
    wide_KN = torch.stack([x.double().view(torch.int64) if x.is_floating_point() else x.long() for x in away])
    if device.type == "cuda" and wide_KN.device.type == "cpu":
        wide_KN = wide_KN.pin_memory()
    moved = iter(wide_KN.to(device, non_blocking=device.type == "cuda"))

    def arrived(column: Tensor) -> Tensor:
        wide_N: Tensor = next(moved)
        return (wide_N.view(torch.float64) if column.is_floating_point() else wide_N).to(column.dtype)

    return [column if column.device == device else arrived(column) for column in columns]


def numbers_of(name: str, values: Tensor | Sequence[float], n: int) -> Tensor:
    values_N = values.detach() if isinstance(values, Tensor) else _column(name, values, torch.float32)
    values_N = values_N if values_N.is_floating_point() or values_N.is_complex() else values_N.float()
    if not values_N.is_floating_point() or values_N.shape != (n,) or not values_N.isfinite().all():
        raise ValueError(
            f"{name} must be {n} finite floating-point numbers, one per response; got {values_N.dtype} of shape "
            f"{tuple(values_N.shape)} with {int((~values_N.isfinite()).sum())} that are not finite"
        )
    return values_N


def verdicts_of(correct: Tensor | Sequence[bool], n: int) -> Tensor:
    correct_N = _column("correct", correct, None if n else torch.bool)  # a rank without responses
    if correct_N.dtype != torch.bool or correct_N.shape != (n,):
        raise ValueError(
            f"correct must be {n} booleans, one per response; got {correct_N.dtype} of shape {tuple(correct_N.shape)}. "
            "Use rewards > 0 for rewards"
        )
    return correct_N


def _column(name: str, values: Tensor | Sequence[float], dtype: torch.dtype | None = None) -> Tensor:
    try:
        return torch.as_tensor(values, dtype=dtype)
    except (RuntimeError, TypeError, ValueError) as error:  # PyTorch names no argument
        raise ValueError(f"{name} must be one number or boolean per response; {error}") from error
