"""The losses against float64 and against plain PyTorch in their own dtype, whatever the options, layouts and chunks.

They run on the C++ kernels, and on Triton's: on the GPU or, where there is none, interpreted."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import (
    BACKENDS,
    CASES,
    DTYPES,
    GPU,
    LINEAR_CASES,
    ON_GPU,
    V,
    check_linear_loss,
    check_loss,
    make_case,
)
from torch import Tensor

from outcome_rl_kernels import PolicyLossOutput, policy_loss


@pytest.mark.parametrize("impl", [BACKENDS[1], ON_GPU])
def test_the_linear_loss(impl: str) -> None:
    @settings(max_examples=15 if impl == "triton" and GPU == "cpu" else 100, deadline=None)
    @given(**LINEAR_CASES, dtype=st.sampled_from(DTYPES[impl]))
    def holds(**drawn: Any) -> None:
        check_linear_loss(impl, device=GPU if impl == "triton" else "cpu", **drawn)

    holds()


def laid_out(logits: Tensor, layout: str) -> Tensor:
    """The logits, as they are or as a view of something larger, which in-place gradients would spoil."""
    if layout == "shifted":  # what models return, but for the last position
        return torch.cat([logits, torch.full_like(logits[:, :1], 99.0)], dim=1)[:, :-1]
    if layout == "padded vocabulary":
        return torch.nn.functional.pad(logits, (0, 13), value=99.0)[..., :V]
    return logits * 1


@pytest.mark.parametrize("impl", [BACKENDS[1], ON_GPU])
def test_the_loss_from_logits(impl: str) -> None:
    @settings(max_examples=10 if impl == "triton" and GPU == "cpu" else 100, deadline=None)
    @given(
        **CASES,
        dtype=st.sampled_from(DTYPES[impl]),
        wants_grad=st.booleans(),
        inplace=st.booleans(),
        layout=st.sampled_from(["contiguous", "padded vocabulary", "shifted"]),
    )
    def holds(
        dtype: torch.dtype, chosen: Any, packed: bool, wants_grad: bool, inplace: bool, layout: str, **drawn: Any
    ) -> None:
        case = make_case(dtype=dtype, chosen=chosen, packed=packed, **drawn)
        case = case._replace(operands={"logits": case.logits(dtype)}).moved(GPU if impl == "triton" else "cpu")
        wants = {"logits"} if wants_grad else set()
        layout = "contiguous" if packed and layout == "shifted" else layout

        def loss(logits: Tensor, **arguments: Any) -> PolicyLossOutput:
            return policy_loss(laid_out(logits, layout), **arguments, inplace=inplace)

        check_loss(loss, case, dtype, wants, chosen, impl=impl)

    holds()
