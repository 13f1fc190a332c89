"""The GPU's path through the fused losses, without a GPU.

The losses run on CPU tensors with the Triton row kernels, interpreted; and on tensors of the `meta` device, which hold
no data, so that whatever would make the host wait for a GPU's data fails.
"""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import CASES, V, check_loss, make_case, run
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no build for this platform")

from outcome_rl_kernels import linear_logprobs, linear_policy_loss, policy_loss
from outcome_rl_kernels.backends import triton_obstacle
from outcome_rl_kernels.loss import chunked_head, fused, row_kernels_triton, support_triton
from outcome_rl_kernels.loss.inputs import token_batch
from outcome_rl_kernels.loss.types import Head, Wants
from outcome_rl_kernels.loss.vocab_parallel import whole_head

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: its own path runs there")


def test_the_interpreter_is_on() -> None:
    assert triton_obstacle(torch.device("cpu")) is None


@settings(max_examples=40, deadline=None)
@given(**CASES, rows=st.sampled_from(["contributing", "active"]), chunk_rows=st.sampled_from([None, 4]))
def test_as_exact_as_plain_pytorch_with_triton_rows(
    chosen: dict[str, Any], absent: set[str], rows: str, chunk_rows: int | None, **drawn: Any
) -> None:
    """Every formula: the default one in one launch, the others through `token_loss`."""
    case = make_case(dtype=torch.float32, chosen=chosen, absent=absent, **drawn)
    wants = {"hidden", "weight", "bias"} - absent
    workspace = None if chunk_rows is None else chunk_rows * V * 4
    fast = {"impl": "triton", "workspace_bytes": workspace}
    check_loss(linear_policy_loss, case, torch.float32, wants, chosen | {"rows": rows}, **fast)


@pytest.mark.parametrize(
    "options",
    [{}, {"beta": 0.1, "entropy_coef": 0.01, "temperature": 0.7, "delta": 3.0}, {"token_loss": "gspo"}],
)
def test_bfloat16_with_triton_rows(options: dict[str, Any]) -> None:
    """Interpreted, float32 is cut off to bfloat16, not rounded."""
    case = make_case(0, torch.bfloat16, options)
    (ours, grads), (reference, expected) = (
        run(
            linear_policy_loss, case.operands, torch.bfloat16, {"hidden", "weight"}, impl=impl, **case.inputs, **options
        )
        for impl in ("triton", "reference")
    )
    torch.testing.assert_close(ours.loss, reference.loss, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.logps, reference.logps, atol=1e-4, rtol=1e-4)
    for name in ("hidden", "weight"):
        assert (grads[name] - expected[name]).norm() <= 2e-2 * expected[name].norm()


@pytest.mark.parametrize("which", ["linear", "from logits"])
def test_float16_keeps_the_gradients_of_a_long_batch(which: str) -> None:
    """With a weight of 1 / 16384, most gradients of logits would be below the least number of float16."""
    case = make_case(0, torch.float16, {}, absent={"bias", "rollout_weights"})
    operands = {name: value.nan_to_num() for name, value in case.operands.items()}
    grads = []
    for dtype, impl in ((torch.float64, "reference"), (torch.float16, "reference"), (torch.float16, "triton")):
        leaves = [operands[name].to(dtype, copy=True).requires_grad_() for name in ("hidden", "weight")]
        options: dict[str, Any] = case.inputs | {"normalizer": 2.0**14, "impl": impl}
        if which == "linear":
            loss = linear_policy_loss(*leaves, **options).loss
        else:
            loss = policy_loss(torch.nn.functional.linear(*leaves), **options).loss
        (2.0**12 * loss).backward()  # the scale of a GradScaler
        grads.append([leaf.grad for leaf in leaves])
    for exact, plain, ours in zip(*grads, strict=True):
        assert (ours - exact).norm() <= 1.5 * (plain - exact).norm()
        assert (ours - exact).norm() <= 2e-3 * exact.norm()


def test_logits_and_logprobs_with_triton_rows() -> None:
    case = make_case(0, torch.float32, {}, absent={"bias"})
    hidden, mask = case.operands["hidden"].nan_to_num(), case.inputs["mask"]
    found = []
    for impl in ("triton", "reference"):
        leaves = hidden.clone().requires_grad_(), case.operands["weight"].clone().requires_grad_()
        logps, entropies = linear_logprobs(*leaves, case.inputs["labels"], mask=mask, return_entropy=True, impl=impl)
        loss = policy_loss(torch.nn.functional.linear(*leaves), **case.inputs, beta=0.1, impl=impl).loss
        (loss + (logps * case.inputs["advantages"][:, None]).sum() + entropies.sum()).backward()
        found.append((logps.detach(), entropies.detach(), loss.detach(), *(leaf.grad for leaf in leaves)))
    for ours, reference in zip(*found, strict=True):
        torch.testing.assert_close(ours, reference, atol=1e-4, rtol=1e-4)


# --- host synchronisation ---

B, T, H = 3, 5, 16


def launch_nothing(*positional: Any, **arguments: Any) -> None:
    """In place of a launch on meta tensors."""


@pytest.mark.parametrize("sample_below", [0.0, 1e-2])
@pytest.mark.parametrize("adds_to_float32", [False, True])
@pytest.mark.parametrize("fp32_logits", [False, True])
@pytest.mark.parametrize("options", [{"beta": 0.1}, {"token_loss": "gspo"}, {"delta": 3.0}])
def test_the_host_waits_for_nothing_but_the_number_of_rows(
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    fp32_logits: bool,
    adds_to_float32: bool,
    sample_below: float,
) -> None:
    monkeypatch.setattr(row_kernels_triton, "_launch", launch_nothing)
    monkeypatch.setattr(support_triton, "launch", launch_nothing)
    monkeypatch.setattr(chunked_head, "_adds_half_products_to_float32", lambda *_: adds_to_float32)
    meta: dict[str, Any] = {"device": "meta"}
    hidden, weight = (torch.empty(*shape, H, dtype=torch.bfloat16, **meta) for shape in ((B, T), (V,)))
    logps = torch.empty(B, T, **meta)
    batch, _ = token_batch(
        hidden,
        torch.empty(B, T, dtype=torch.int64, **meta),
        torch.empty(B, **meta),
        torch.empty(B, T, dtype=torch.bool, **meta),
        ref_logps=logps,
        old_logps=logps,
        **options,
    )

    def body(rows_R: Tensor | None, compacts: bool) -> tuple[Tensor, ...]:
        chosen = fused.Options(rows_R, compacts, "triton", 5000, fp32_logits, sample_below, 0)
        head, wants = Head(hidden.reshape(-1, H), weight, weight[:, 0]), Wants(True, True, True)
        return fused._linear_policy_loss(head, chosen, wants, batch, whole_head(weight))

    for rows_R, compacts in ((torch.arange(7, **meta), True), (None, False)):
        *_, hidden_grad, weight_grad, bias_grad = body(rows_R, compacts)
        assert (hidden_grad.shape, weight_grad.shape, bias_grad.shape) == ((B * T, H), (V, H), (V,))
    with pytest.raises(NotImplementedError, match="nonzero"):  # the one thing to wait for, and this test would notice
        body(None, True)
