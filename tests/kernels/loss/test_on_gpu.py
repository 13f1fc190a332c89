"""The losses and log-probabilities on a GPU: values, gradients, autograd, autocast, compile, capture and memory.

Their formulas are tested everywhere by the other files; here products, chunks, row kernels and autograd meet on CUDA.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from loss_cases import Case, V, make_case, run
from torch import Tensor

from outcome_rl_kernels import linear_divergence, linear_logprobs, linear_policy_loss, policy_loss

DEVICE, FAST = "cuda", "triton"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: there is none"),
]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
GIB = 2**30


def without_holes(seed: int, dtype: torch.dtype, **chosen: Any) -> Case:
    """A case on the GPU with finite hidden states everywhere, for `rows="all"`."""
    case = make_case(seed, dtype, chosen).moved(DEVICE)
    return case._replace(operands=case.operands | {"hidden": case.operands["hidden"].nan_to_num()})


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
        labels, sampling = case.inputs["labels"].clamp(min=0), {"sample_below": 0.03, "sample_seed": 0}
        given: dict[str, Any] = {"rows": "all", "workspace_bytes": workspace}
        if which == "logprobs":
            values, _ = linear_logprobs(**leaves, labels=labels, workspace_bytes=workspace)
            loss = values.sum()
        elif which == "ids":
            ids = torch.stack([labels, V - 1 - labels], dim=-1)
            values, _ = linear_logprobs(**leaves, labels=None, ids=ids, workspace_bytes=workspace)
            loss = values.sum()
        elif which == "divergence":
            teacher = case.operands["hidden"].flip(0), case.operands["weight"], case.inputs["mask"]
            hidden, weight, bias = leaves.values()
            loss = linear_divergence(hidden, weight, *teacher, bias=bias, kind="jsd", **given, **sampling).loss
        elif which == "logits":
            logits = torch.nn.functional.linear(leaves["hidden"], leaves["weight"], leaves["bias"])
            loss = policy_loss(logits, **case.inputs, beta=0.1, inplace=True).loss
        else:
            given |= sampling if which == "sampled" else {}
            loss = linear_policy_loss(**leaves, **case.inputs, beta=0.1, **given).loss
        loss.backward()
        return [loss.detach(), *(leaf.grad for leaf in leaves.values() if leaf.grad is not None)]

    return step, case


@pytest.mark.parametrize("which", ["linear", "sampled", "logits", "logprobs", "ids", "divergence"])
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
