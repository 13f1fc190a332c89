"""The losses and log-probabilities on a GPU: values, gradients, autograd, autocast, compile, capture and memory.

Their formulas are tested everywhere by the other files; here products, chunks, row kernels and autograd meet on CUDA.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import LINEAR_CASES, Case, V, assert_as_exact, assert_same_tokens, check_linear_loss, make_case, run
from torch import Tensor

from outcome_rl_kernels import linear_logprobs, linear_policy_loss, policy_loss

DEVICE, FAST = "cuda", "triton"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: there is none"),
]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
GIB = 2**30


@pytest.fixture(autouse=True, scope="module")
def products_round_once() -> Iterator[None]:
    """Keep cuBLAS from rounding partial sums, as it may by default: of nine rows, 37 % of the logits came out so."""
    matmul, names = torch.backends.cuda.matmul, ("bf16", "fp16")
    settings = [f"allow_{name}_reduced_precision_reduction" for name in names]
    before = [getattr(matmul, setting) for setting in settings]
    for setting in settings:
        setattr(matmul, setting, False)
    yield
    for setting, value in zip(settings, before, strict=True):
        setattr(matmul, setting, value)


def without_holes(seed: int, dtype: torch.dtype, **chosen: Any) -> Case:
    """A case on the GPU with finite hidden states everywhere, for `rows="all"`."""
    case = make_case(seed, dtype, chosen).moved(DEVICE)
    return case._replace(operands=case.operands | {"hidden": case.operands["hidden"].nan_to_num()})


@settings(max_examples=100, deadline=None)
@given(**LINEAR_CASES, dtype=st.sampled_from(DTYPES))
def test_the_linear_loss_is_as_exact_as_plain_pytorch(**drawn: Any) -> None:
    check_linear_loss(FAST, device=DEVICE, **drawn)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("options", [{}, {"beta": 0.2, "entropy_coef": 0.05}, {"token_loss": "gspo"}])
def test_the_loss_from_logits_is_as_exact_as_plain_pytorch(
    dtype: torch.dtype, inplace: bool, options: dict[str, Any]
) -> None:
    case = make_case(0, dtype, options).moved(DEVICE)
    logits = Case({name: value.nan_to_num() for name, value in case.operands.items()}, {}).logits(dtype)

    def of(dtype: torch.dtype, impl: str) -> dict[str, Tensor]:
        leaf = logits.to(dtype, copy=True).requires_grad_()
        loss = policy_loss(leaf * 1, **case.inputs, **options, impl=impl, inplace=inplace and impl == FAST).loss
        loss.backward()
        return {"loss": loss.detach(), "logits": leaf.grad}

    assert_as_exact(of(dtype, FAST), of(dtype, "reference"), of(torch.float64, "reference"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("chunk_rows", [None, 4])
def test_log_probabilities_are_as_exact_as_plain_pytorch(
    dtype: torch.dtype, masked: bool, chunk_rows: int | None
) -> None:
    case = without_holes(0, dtype)
    mask = case.inputs["mask"]
    labels = case.inputs["labels"].where(mask, 0)
    upstream = torch.randn(2, *mask.shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)

    def of(dtype: torch.dtype, impl: str) -> dict[str, Tensor | None]:
        leaves = {name: value.to(dtype, copy=True).requires_grad_() for name, value in case.operands.items()}
        workspace = None if chunk_rows is None else chunk_rows * V * dtype.itemsize
        options: dict[str, Any] = {"labels": labels, "mask": mask if masked else None, "workspace_bytes": workspace}
        values = linear_logprobs(**leaves, **options, return_entropy=True, impl=impl)
        (torch.stack(values) * upstream).sum().backward()
        found = {"logps": values[0].detach(), "entropies": values[1].detach()}
        return found | {name: leaf.grad for name, leaf in leaves.items()}

    assert_as_exact(of(dtype, FAST), of(dtype, "reference"), of(torch.float64, "reference"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(1,), (16,), (0, 1, 40, V)], ids=str)  # of a token: equal ones, and uneven ones
@pytest.mark.parametrize("rows", ["contributing", "active"])
def test_a_support_is_as_exact_as_plain_pytorch(dtype: torch.dtype, sizes: tuple[int, ...], rows: Any) -> None:
    chosen: dict[str, Any] = {"entropy_coef": 0.05, "temperature": 0.7}
    case = make_case(0, dtype, chosen, absent={"old_logps", "ref_logps"})
    g = torch.Generator().manual_seed(0)
    labels_N = case.inputs["labels"].flatten().clamp(0, V - 1)  # unread where the mask is False
    kept = [
        torch.cat([labels_N[row, None], torch.randperm(V, generator=g)[: sizes[row % len(sizes)]]])
        for row in range(len(labels_N))
    ]
    case, offsets = case.moved(DEVICE), torch.tensor([0, *map(len, kept)]).cumsum(0)
    support = offsets.to(DEVICE), torch.cat(kept).to(DEVICE)

    def of(dtype: torch.dtype, impl: str) -> Any:
        arguments = case.inputs | chosen | {"rows": rows, "support": support, "impl": impl}
        return run(linear_policy_loss, case.operands, dtype, {"hidden", "weight", "bias"}, **arguments)

    exact, truth = of(torch.float64, "reference")
    plain, eager = of(dtype, "reference")
    output, ours = of(dtype, FAST)
    assert_as_exact(ours, eager, truth)
    assert_same_tokens(output, plain, exact)


# --- autograd, autocast, compile ---


def gradients(case: Case, loss: Callable[..., Any] = linear_policy_loss, **options: Any) -> list[Tensor]:
    output, values = run(loss, case.operands, torch.float32, {"hidden", "weight", "bias"}, **case.inputs, **options)
    return [output.logps, output.entropies, *(value for value in values.values() if value is not None)]


def test_a_factor_and_a_retained_graph() -> None:
    case = without_holes(0, torch.float32)
    once = gradients(case, rows="all")[-3:]
    for factors in ([1 / 3], [1.0, 2.0], [4.0, 1.0, -0.5]):
        leaves = {name: value.clone().requires_grad_() for name, value in case.operands.items()}
        loss = linear_policy_loss(**leaves, **case.inputs, rows="all").loss
        for number, factor in enumerate(factors):
            (factor * loss).backward(retain_graph=number < len(factors) - 1)
        for leaf, expected in zip(leaves.values(), once, strict=True):
            torch.testing.assert_close(leaf.grad, sum(factors) * expected, atol=1e-6, rtol=1e-5)


def test_the_gradient_of_the_weight_is_given_away() -> None:
    case = without_holes(0, torch.float32)
    for factor in (1.0, 3.0):
        leaves = {name: value.clone().requires_grad_() for name, value in case.operands.items()}
        loss = linear_policy_loss(**leaves, **case.inputs, rows="all").loss
        places = [grad.data_ptr() for grad in loss.grad_fn.saved_tensors if grad is not None]
        (factor * loss).backward()
        assert leaves["weight"].grad.data_ptr() in places


def test_autocast() -> None:
    case = without_holes(0, torch.float32)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        automatic = gradients(case)
    half = {name: value.bfloat16() for name, value in case.operands.items()}
    output, by_hand = run(linear_policy_loss, half, torch.bfloat16, {"hidden", "weight", "bias"}, **case.inputs)
    assert torch.equal(automatic[0], output.logps)
    for ours, cast in zip(automatic[-3:], (by_hand[name] for name in case.operands), strict=True):
        assert torch.equal(ours, cast.float())


@pytest.mark.parametrize("rows", ["contributing", "all"])
def test_compiles_whole(rows: Any) -> None:
    case = without_holes(0, torch.float32)
    compiled = torch.compile(linear_policy_loss, fullgraph=True)
    for ours, eager in zip(gradients(case, compiled, rows=rows), gradients(case, rows=rows), strict=True):
        torch.testing.assert_close(ours, eager)


# --- the host ---


def step_of(which: str, dtype: torch.dtype) -> tuple[Callable[[], list[Tensor]], Case]:
    """A forward and backward pass that need not wait for the GPU, into tensors that stay."""
    case = without_holes(0, dtype)
    leaves = {name: value.clone().requires_grad_() for name, value in case.operands.items()}
    workspace = 5 * V * dtype.itemsize  # chunks

    def step() -> list[Tensor]:
        for leaf in leaves.values():
            leaf.grad = None
        if which == "logprobs":
            labels = case.inputs["labels"].clamp(min=0)
            values, _ = linear_logprobs(**leaves, labels=labels, workspace_bytes=workspace)
            loss = values.sum()
        elif which == "logits":
            logits = torch.nn.functional.linear(leaves["hidden"], leaves["weight"], leaves["bias"])
            loss = policy_loss(logits, **case.inputs, beta=0.1, inplace=True).loss
        else:
            loss = linear_policy_loss(**leaves, **case.inputs, beta=0.1, rows="all", workspace_bytes=workspace).loss
        loss.backward()
        return [loss.detach(), *(leaf.grad for leaf in leaves.values() if leaf.grad is not None)]

    return step, case


@pytest.mark.parametrize("which", ["linear", "logits", "logprobs"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_synchronises_nowhere_and_replays_bit_for_bit(which: str, dtype: torch.dtype) -> None:
    step, _ = step_of(which, dtype)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()  # compiles the kernels
        torch.cuda.set_sync_debug_mode("error")
        try:
            expected = [value.clone() for value in step()]
        finally:
            torch.cuda.set_sync_debug_mode("default")
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    for _ in range(3):
        for value in found:
            value.fill_(torch.nan)
        graph.replay()
        assert all(map(torch.equal, found, expected))


def test_at_most_two_gib_beyond_inputs_and_gradients_at_the_size_of_llama() -> None:
    """The ledger on meta tensors (test_ledger.py) says so; here the allocator does."""
    tokens, hidden_size, vocabulary = 16384, 4096, 128256
    if torch.cuda.mem_get_info()[0] < 8 * GIB:
        pytest.skip("needs 8 GiB of free GPU memory")
    g = torch.Generator(DEVICE).manual_seed(0)
    hidden, weight = (
        (torch.randn(*shape, hidden_size, generator=g, device=DEVICE) / 8).bfloat16().requires_grad_()
        for shape in ((16, tokens // 16), (vocabulary,))
    )
    labels = torch.randint(vocabulary, (16, tokens // 16), generator=g, device=DEVICE)
    mask = torch.ones_like(labels, dtype=torch.bool)
    for warm in (True, False):
        hidden.grad = weight.grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        linear_policy_loss(hidden, weight, labels, torch.ones(16, device=DEVICE), mask, rows="all").loss.backward()
        extra = torch.cuda.max_memory_allocated() - before - 2 * (tokens + vocabulary) * hidden_size
        assert warm or extra <= 2 * GIB
