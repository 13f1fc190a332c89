"""The GPU's path through the fused losses, without a GPU.

The losses run on CPU tensors with the Triton row passes, interpreted, in place of the C++ ones; and on tensors of the
`meta` device, which hold no data, so that whatever would make the host wait for a GPU's data fails.
"""

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no build for this platform")

from outcome_rl_kernels import linear_logprobs, linear_policy_loss, policy_loss
from outcome_rl_kernels.loss import chunked_head as lm_head
from outcome_rl_kernels.loss import fused_linear as fused_linear_policy_loss
from outcome_rl_kernels.loss import fused_logprobs
from outcome_rl_kernels.loss import row_kernels_triton as policy_rows_triton
from outcome_rl_kernels.loss.checks import token_batch
from outcome_rl_kernels.loss.operator_arguments import TokenArguments
from outcome_rl_kernels.loss.reference import LossSettings

B, T, H, V = 3, 5, 16, 131


def inputs(dtype: torch.dtype, device: str = "cpu") -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(0)
    logps = -5 + torch.randn(2, B, T, generator=g)
    found = {
        "hidden": torch.randn(B, T, H, generator=g).to(dtype),
        "weight": torch.randn(V, H, generator=g).to(dtype),
        "bias": torch.randn(V, generator=g).to(dtype),
        "labels": torch.randint(V, (B, T), generator=g),
        "advantages": torch.tensor([1.0, 0.0, -0.5]),  # one dead group
        "mask": torch.rand(B, T, generator=g) < 0.7,
        "bonuses": torch.tensor([0.1, 0.0, 0.2]),
        "answer_mask": torch.rand(B, T, generator=g) < 0.2,
        "old_logps": logps[0],
        "ref_logps": logps[1],
        "rollout_weights": torch.rand(B, generator=g),
    }
    return {name: value.to(device) for name, value in found.items()}


@pytest.fixture
def triton_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def passes(device: torch.device) -> ModuleType:
        return policy_rows_triton

    for module in (fused_linear_policy_loss, fused_logprobs):
        monkeypatch.setattr(module, "row_passes", passes)
    monkeypatch.setattr("outcome_rl_kernels.loss.fused.row_passes", passes)


@pytest.mark.usefixtures("triton_rows")
@pytest.mark.parametrize("workspace_bytes", [None, 4 * V * 4])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"beta": 0.1, "entropy_coef": 0.01, "temperature": 0.7, "delta": 3.0},
        {"importance_level": "sequence", "answer_mask_mode": "bonus", "loss_agg": "seq-mean-token-mean"},
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_whole_loss_with_triton_rows(
    dtype: torch.dtype, settings: dict[str, Any], workspace_bytes: int | None
) -> None:
    found = []
    for impl, extra in (("auto", {"workspace_bytes": workspace_bytes}), ("reference", {})):
        call = inputs(dtype)
        leaves = [call[name].requires_grad_() for name in ("hidden", "weight", "bias")]
        output = linear_policy_loss(**call, **settings, **extra, impl=impl)
        output.loss.backward()
        found.append((output, [leaf.grad for leaf in leaves]))
    (ours, grads), (reference, expected) = found
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2  # interpreted, float32 is cut off to bfloat16, not rounded
    torch.testing.assert_close(ours.loss, reference.loss, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.logps, reference.logps, atol=1e-4, rtol=1e-4)
    for name, value in reference.metrics.items():
        torch.testing.assert_close(ours.metrics[name], value, atol=1e-4, rtol=1e-4, check_dtype=False, msg=name)
    for grad, truth in zip(grads, expected, strict=True):
        assert grad is not None
        assert truth is not None
        assert (grad - truth).norm() <= tolerance * truth.norm()


@pytest.mark.usefixtures("triton_rows")
def test_logits_and_logprobs_with_triton_rows() -> None:
    found = []
    for impl in ("auto", "reference"):
        call = inputs(torch.float32)
        hidden, weight = call.pop("hidden").requires_grad_(), call.pop("weight").requires_grad_()
        bias = call.pop("bias")
        logps, entropies = linear_logprobs(
            hidden, weight, call["labels"], bias=bias, mask=call["mask"], return_entropy=True, impl=impl
        )
        assert entropies is not None
        loss = policy_loss(torch.nn.functional.linear(hidden, weight, bias), **call, beta=0.1, impl=impl).loss
        (loss + (logps * call["advantages"][:, None]).sum() + entropies.sum()).backward()
        found.append((logps.detach(), entropies.detach(), loss.detach(), hidden.grad, weight.grad))
    for ours, reference in zip(*found, strict=True):
        torch.testing.assert_close(ours, reference, atol=1e-4, rtol=1e-4)


def stub_rows(device: torch.device) -> SimpleNamespace:
    def policy_rows(logits_RV: Tensor, *others: Any) -> Tensor:
        return logits_RV.new_empty(7, len(logits_RV), dtype=torch.float32)

    def logprob_rows(logits_RV: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
        return policy_rows(logits_RV)[0], policy_rows(logits_RV)[1]

    return SimpleNamespace(policy_rows=policy_rows, logprob_rows=logprob_rows)


@pytest.mark.parametrize("adds_to_float32", [False, True])
@pytest.mark.parametrize("fp32_logits", [False, True])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_with_rows_given_the_host_never_waits(
    monkeypatch: pytest.MonkeyPatch, level: str, fp32_logits: bool, adds_to_float32: bool
) -> None:
    monkeypatch.setattr(fused_linear_policy_loss, "row_passes", stub_rows)
    monkeypatch.setattr(lm_head, "_adds_half_products_to_float32", lambda *_: adds_to_float32)
    call = inputs(torch.bfloat16, "meta")
    hidden, weight, bias = (call.pop(name) for name in ("hidden", "weight", "bias"))
    batch, _ = token_batch(**call, cu_seqlens=None, device=hidden.device)
    weights_N = torch.empty(B * T, device="meta")
    settings = LossSettings(importance_level=level, beta=0.1)  # type: ignore[arg-type]
    arguments = TokenArguments.of_batch(batch, weights_N, settings).flat()
    rows_R = torch.arange(7, device="meta")

    def body(rows_R: Tensor | None) -> tuple[Tensor, ...]:
        return fused_linear_policy_loss._linear_policy_loss(
            hidden.reshape(-1, H), weight, bias, batch.mask_N, rows_R, *arguments, 5000, fp32_logits, True, True, True
        )

    *_, hidden_grad, weight_grad, bias_grad = body(rows_R)
    assert (hidden_grad.shape, weight_grad.shape, bias_grad.shape) == ((B * T, H), (V, H), (V,))
    with pytest.raises(NotImplementedError, match="nonzero"):  # the one thing to wait for, and this test would notice
        body(None)
