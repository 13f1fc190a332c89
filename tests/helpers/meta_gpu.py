"""Tensors of the device "meta", which hold no data, in place of those of a GPU.

PyTorch without CUDA ends the process where fake CUDA tensors need a gradient.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from outcome_rl_kernels import backends
from outcome_rl_kernels.counts import triton as counts_triton
from outcome_rl_kernels.loss import fused, logprobs
from outcome_rl_kernels.loss.rows import scale_triton
from outcome_rl_kernels.loss.rows import triton as row_kernels_triton
from outcome_rl_kernels.loss.support import triton as support_triton

META: dict[str, Any] = {"device": "meta"}


class Launches:
    """A kernel that checks the devices of its arguments in place of running."""

    def __init__(self) -> None:
        self.number = 0

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self

    def __call__(self, *arguments: Any, **named: Any) -> None:
        self.number += 1
        columns = [value for group in (arguments, named.values()) for value in group if isinstance(value, Tensor)]
        columns += [
            value for rows in arguments if isinstance(rows, tuple) for value in rows if isinstance(value, Tensor)
        ]
        assert columns
        assert all(column.is_meta for column in columns)


def take_meta_for_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the public functions take meta tensors down the GPU's path; its kernels are not replaced."""
    monkeypatch.setattr(backends, "missing_for", lambda impl, device: None)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: False)  # which knows no meta device
    for module in (fused, logprobs):
        monkeypatch.setattr(module, "is_traced", lambda tensor: False)


def replace_kernels(monkeypatch: pytest.MonkeyPatch) -> Launches:
    """Replace every Triton kernel by one that checks devices, and return it."""
    found = Launches()
    monkeypatch.setattr(row_kernels_triton, "launch_rows", found)
    monkeypatch.setattr(scale_triton, "scale_", found)
    monkeypatch.setattr(support_triton, "launch", found)
    for name in ("find_kernel", "commit_kernel", "rehash_kernel"):
        monkeypatch.setattr(counts_triton, name, found)
    return found
