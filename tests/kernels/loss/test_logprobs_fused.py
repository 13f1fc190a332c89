"""Log-probabilities a chunk of logits at a time: products, memory and operators; test_given_ids.py has their values."""

from typing import Any

import pytest
import torch
from loss_cases import H, V, make_case, needs_native
from op_profile import caught_operator, cost_of
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from outcome_rl_kernels import linear_logprobs

pytestmark = needs_native


def test_float32_logits_are_not_rounded() -> None:
    case = make_case(0, torch.bfloat16, {})
    exact = linear_logprobs(
        **{name: value.double() for name, value in case.operands.items()},
        labels=case.inputs["labels"],
        mask=case.inputs["mask"],
    )[0]

    def far(**options: Any) -> float:
        logps, _ = linear_logprobs(
            **case.operands, labels=case.inputs["labels"], mask=case.inputs["mask"], impl="native", **options
        )
        return float((logps - exact).abs().max())

    assert far(fp32_logits=True) < 1e-5 < 1e-2 < far()


def test_products() -> None:
    """One forward; three backward, the first to have the logits back; rows outside the mask reach none."""
    rows, vocabulary = 40, 2048
    g = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(rows, H, generator=g), torch.randn(vocabulary, H, generator=g)
    labels, half = torch.randint(vocabulary, (rows,), generator=g), torch.arange(rows) < rows // 2

    def products(wants: str = "", mask: Tensor | None = None) -> float:
        leaves = hidden.clone().requires_grad_("hidden" in wants), weight.clone().requires_grad_("weight" in wants)

        def call() -> None:
            logps, _ = linear_logprobs(*leaves, labels, mask=mask, impl="native", workspace_bytes=7 * vocabulary * 4)
            if logps.requires_grad:
                logps.sum().backward()

        return cost_of(call).multiply_adds / (rows * H * vocabulary)

    assert products() == 1
    assert products("hidden weight") == 4
    assert products("hidden") == products("weight") == 3
    assert products("hidden weight", half) == 2
    assert products(mask=half) == 1 / 2


def test_no_more_logits_than_the_workspace() -> None:
    vocabulary = 2**14
    hidden, weight = torch.randn(40, H).requires_grad_(), torch.randn(vocabulary, H)
    labels, row = torch.zeros(40, dtype=torch.int64), vocabulary * 4
    for rows in (1, 8):
        cost = cost_of(
            lambda rows=rows: linear_logprobs(hidden, weight, labels, workspace_bytes=rows * row)[0].sum().backward()
        )
        padded = 4 * row if rows < 4 else 0  # fewer than four rows are multiplied as four
        assert rows * row <= cost.peak_bytes < rows * row + padded + 64_000


@pytest.mark.parametrize(
    ("transposed", "is_masked", "fp32_logits"), [(False, False, False), (True, True, False), (False, True, True)]
)
def test_opcheck(transposed: bool, is_masked: bool, fp32_logits: bool) -> None:
    mask = torch.tensor([True, False, True, True, False]) if is_masked else None
    g = torch.Generator().manual_seed(0)
    dtype = torch.bfloat16 if fp32_logits else torch.float32
    hidden, weight = torch.randn(5, H, generator=g).to(dtype), torch.randn(V, H, generator=g).to(dtype)
    bias = torch.randn(V, generator=g).to(dtype).requires_grad_(not transposed)
    if transposed:
        hidden, weight = hidden.t().clone().t(), weight.t().clone().t()
    hidden.requires_grad_()
    weight.requires_grad_()
    labels = torch.randint(V, (5,), generator=g)

    def call() -> Tensor:
        logps, entropies = linear_logprobs(
            hidden, weight, labels, bias=bias, mask=mask, return_entropy=True, fp32_logits=fp32_logits
        )
        return logps.sum() + 0.1 * entropies.sum()

    operator, arguments = caught_operator(call)
    assert operator is torch.ops.outcome_rl.linear_logprobs.default
    torch.library.opcheck(operator, arguments)
    operator, arguments = caught_operator(lambda: call().backward())
    assert operator is torch.ops.outcome_rl.linear_logprobs_backward.default
    torch.library.opcheck(operator, arguments)


def test_gradient_checkpointing() -> None:
    case = make_case(0, torch.float32, {})
    plain, checkpointed = (
        [leaf.nan_to_num().requires_grad_() for leaf in case.operands.values()] for _ in ("plain", "checkpointed")
    )

    def function(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return linear_logprobs(hidden, weight, case.inputs["labels"], bias=bias, mask=case.inputs["mask"])[0].sum()

    function(*plain).backward()
    checkpoint(function, *checkpointed, use_reentrant=False).backward()
    for a, b in zip(plain, checkpointed, strict=True):
        assert torch.equal(a.grad, b.grad)
