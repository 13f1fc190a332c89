"""Log-probabilities and entropies a chunk of logits at a time, and their gradients: against float64 and against plain
PyTorch in its own dtype."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import FLOOR, WANTS, H, V, assert_as_exact, assert_compiles_once, make_case, needs_native
from op_profile import caught_operator, cost_of
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from outcome_rl_kernels import linear_logprobs

pytestmark = needs_native


def values_and_gradients(
    operands: dict[str, Tensor], dtype: torch.dtype, wants: set[str], upstream: Tensor, **arguments: Any
) -> tuple[tuple[Tensor, Tensor], dict[str, Tensor | None]]:
    """Log-probabilities and entropies, and the gradients of their sum weighted with `upstream` (2, ...)."""
    leaves = {name: value.to(dtype).clone().requires_grad_(name in wants) for name, value in operands.items()}
    logps, entropies = linear_logprobs(**leaves, **arguments, return_entropy=True)
    total = (torch.stack([logps, entropies]) * upstream).sum()
    if total.requires_grad:
        total.backward()
    return (logps.detach(), entropies.detach()), {name: leaf.grad for name, leaf in leaves.items()}


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 1000),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    numbers=st.fixed_dictionaries(
        {"temperature": st.sampled_from([1.0, 0.7]), "softcap": st.sampled_from([None, 12.0])}
    ),
    absent=st.sets(st.just("bias")),
    packed=st.booleans(),
    wants=WANTS,
    of=st.sampled_from(["logps", "entropies", "both"]),
    chunk_rows=st.sampled_from([None, 1, 4]),
    fp32_logits=st.booleans(),
)
def test_as_exact_as_plain_pytorch(
    seed: int, dtype: torch.dtype, numbers: Any, wants: Any, of: str, chunk_rows: int, fp32_logits: bool, **drawn: Any
) -> None:
    case = make_case(seed, dtype, {}, **drawn)
    labels, mask = case.inputs["labels"], case.inputs["mask"]
    upstream = torch.randn(2, *mask.shape, generator=torch.Generator().manual_seed(seed))
    upstream *= torch.tensor({"logps": [1, 0], "entropies": [0, 1], "both": [1, 1]}[of]).view(2, *[1] * mask.dim())
    arguments = {"labels": labels, "mask": mask, "upstream": upstream, "wants": wants} | numbers
    row_bytes = V * (4 + dtype.itemsize if fp32_logits else dtype.itemsize)
    values, ours = values_and_gradients(
        case.operands,
        dtype,
        workspace_bytes=None if chunk_rows is None else chunk_rows * row_bytes,
        fp32_logits=fp32_logits,
        impl="native",
        **arguments,
    )
    plain, eager = values_and_gradients(case.operands, dtype, impl="reference", **arguments)
    exact, truth = values_and_gradients(case.operands, torch.float64, impl="reference", **arguments)
    assert_as_exact(ours, eager, truth)
    for got, theirs, want in zip(values, plain, exact, strict=True):
        assert got.dtype == torch.float32
        assert not got[~mask].any()
        far = [(value - want).abs().max() for value in (got, theirs)] if mask.any() else [0, 0]
        assert far[0] <= 2 * far[1] + 16 * FLOOR


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


def test_compiles_whole_and_once_for_all_lengths() -> None:
    def function(hidden: Tensor, weight: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        logps, entropies = linear_logprobs(hidden, weight, labels, mask=mask, return_entropy=True)
        return (logps * logps + entropies).sum()

    assert_compiles_once(function, H, torch.randn(V, H))


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
