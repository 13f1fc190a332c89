"""The three-product policy loss: against float64 and against plain PyTorch in its own dtype, whatever the chunks."""

import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from outcome_rl_kernels import fused_policy_loss as fused
from outcome_rl_kernels import linear_policy_loss
from outcome_rl_kernels.checks import token_batch
from outcome_rl_kernels.native import native_status
from outcome_rl_kernels.reference import LossSettings, policy_loss_from_logits

pytestmark = pytest.mark.skipif(not native_status()[0], reason=f"the native library: {native_status()[1]}")

H, V = 16, 211
LENGTHS = [5, 1, 9, 0, 12]  # a sequence of one token, and one that is empty
R = sum(LENGTHS)


def batch_of(seed: int, **overrides: Any) -> Any:
    g = torch.Generator().manual_seed(seed)
    optional = {
        "bonuses": 0.1 * torch.randn(len(LENGTHS), generator=g),
        "answer_mask": torch.rand(R, generator=g) < 0.3,
        "ref_logps": torch.randn(R, generator=g) - 6,
        "old_logps": torch.randn(R, generator=g) - 6,
        "rollout_weights": torch.rand(R, generator=g),
    }
    batch, _ = token_batch(
        torch.randint(V, (R,), generator=g),
        torch.randn(len(LENGTHS), generator=g),
        torch.ones(R, dtype=torch.bool),
        cu_seqlens=torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0).tolist()]),
        device=torch.device("cpu"),
        **(optional | overrides),
    )
    return batch


def operands(seed: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed + 1)
    hidden, weight = torch.randn(R, H, generator=g), torch.randn(V, H, generator=g)
    return hidden.to(dtype), weight.to(dtype), torch.randn(V, generator=g).to(dtype)


def run(
    inputs: tuple[Tensor, ...], batch: Any, options: LossSettings, workspace: int | None, dtype: torch.dtype
) -> Any:
    hidden, weight, bias = (x.detach().to(dtype).requires_grad_() for x in inputs)
    if workspace is None:
        logits = torch.nn.functional.linear(hidden, weight, bias)
        output = policy_loss_from_logits(logits, batch, options)
    else:
        output = fused.fused_policy_loss(hidden, weight, bias, batch, options, None, workspace)
    output.loss.backward()
    return output, {"loss": output.loss.detach(), "hidden": hidden.grad, "weight": weight.grad, "bias": bias.grad}


def relative(a: Tensor, truth: Tensor) -> float:
    # The loss is a mean of terms of size 1 that may cancel: 1 is its scale.
    scale = truth.norm() if truth.dim() else truth.abs().clamp(min=1)
    return float((a.double() - truth).norm() / scale)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 50),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    mode=st.sampled_from(["policy", "bonus", "none"]),
    loss_agg=st.sampled_from(["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]),
    level=st.sampled_from(["token", "sequence"]),
    beta=st.sampled_from([0.0, 0.2]),
    entropy_coef=st.sampled_from([0.0, 0.05]),
    temperature=st.sampled_from([1.0, 0.7]),
    delta=st.sampled_from([None, 3.0]),
    chunk_rows=st.sampled_from([1, 4, 100]),
)
def test_as_exact_as_plain_pytorch(
    seed: int, dtype: torch.dtype, level: str, mode: str, chunk_rows: int, **options: Any
) -> None:
    # Policy and old policy near each other: an exponential of their distance would magnify the rounding of the logits.
    inputs = operands(seed, dtype)
    exact = torch.nn.functional.linear(*(x.double() for x in inputs)) / options["temperature"]
    near = exact.log_softmax(-1).gather(1, batch_of(seed).labels_N[:, None])[:, 0].float()
    noise = torch.randn(2, R, generator=torch.Generator().manual_seed(seed)) * 0.3
    batch = batch_of(seed, old_logps=near + noise[0], ref_logps=near + noise[1])
    chosen = LossSettings(answer_mask_mode=mode, importance_level=level, **options)  # type: ignore[arg-type]
    _, truth = run(inputs, batch, chosen, None, torch.float64)
    _, eager = run(inputs, batch, chosen, None, dtype)
    output, ours = run(inputs, batch, chosen, chunk_rows * V * inputs[1].element_size(), dtype)
    # Chunks sum the products in another order, which moves float32 logits of size 16 by so much, and every p_v with
    # them.
    floor = 16 * torch.finfo(torch.float32).eps
    for name in truth:
        error, allowed = relative(ours[name], truth[name]), 2 * relative(eager[name], truth[name]) + floor
        assert error <= allowed, f"{name}: {error:.1e} against {allowed:.1e}"
    assert output.metrics["active_tokens"].item() == R


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_chunks_do_not_change_diagnostics(level: str) -> None:
    inputs, batch = operands(0, torch.float32), batch_of(0)
    options = LossSettings(beta=0.1, importance_level=level)  # type: ignore[arg-type]
    whole, _ = run(inputs, batch, options, None, torch.float32)
    for chunk_rows in (1, 7, 1000):
        output, _ = run(inputs, batch, options, chunk_rows * V * 4, torch.float32)
        torch.testing.assert_close(output.logps, whole.logps, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(output.entropies, whole.entropies, atol=1e-5, rtol=1e-5)
        for name, value in whole.metrics.items():
            torch.testing.assert_close(output.metrics[name], value, atol=1e-4, rtol=1e-4, msg=name)


def test_sequences_stay_whole_where_the_ratio_is_theirs() -> None:
    options = LossSettings(importance_level="sequence")
    chunks = list(fused._chunks(batch_of(0), options, chunk_rows=6))
    assert [(c.start, c.stop) for c in chunks] == [(0, 6), (6, 15), (15, 27)]  # 5 + 1 fit; 9 and 12 are longer alone


def test_only_what_is_wanted_is_computed() -> None:
    """Three products in all; a frozen weight skips its product, frozen hidden states skip theirs."""
    hidden, weight, _ = operands(0, torch.float32)

    def products_of(hidden: Tensor, weight: Tensor) -> float:
        with FlopCounterMode(display=False) as counter:
            output = fused.fused_policy_loss(hidden, weight, None, batch_of(0), LossSettings(), None, 2**30)
            if output.loss.requires_grad:
                output.loss.backward()
        return counter.get_total_flops() / (2 * R * H * V)

    assert products_of(hidden, weight) == 1
    assert products_of(hidden.clone().requires_grad_(), weight) == 2
    assert products_of(hidden, weight.clone().requires_grad_()) == 2
    assert products_of(hidden.clone().requires_grad_(), weight.clone().requires_grad_()) == 3
    with torch.no_grad():
        assert products_of(hidden.clone().requires_grad_(), weight.clone().requires_grad_()) == 1


def test_the_loss_may_be_scaled_and_added() -> None:
    hidden, weight, _ = operands(0, torch.float32)
    grads = []
    for scale in (1.0, 3.0):
        h = hidden.clone().requires_grad_()
        loss = fused.fused_policy_loss(h, weight, None, batch_of(0), LossSettings(), None).loss
        (loss * scale + h.sum() * 0).backward()
        grads.append(h.grad)
    torch.testing.assert_close(grads[0] * 3, grads[1])


def test_second_derivatives_are_refused() -> None:
    hidden = operands(0, torch.float32)[0].requires_grad_()
    weight = operands(0, torch.float32)[1]
    loss = fused.fused_policy_loss(hidden, weight, None, batch_of(0), LossSettings(), None).loss
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(loss, hidden, create_graph=True)


class TestPublic:
    """Through `linear_policy_loss`: the choice of the implementation, masks, layouts."""

    @staticmethod
    def call(dtype: torch.dtype = torch.float32, **kwargs: Any) -> Any:
        g = torch.Generator().manual_seed(0)
        hidden = torch.randn(3, 7, H, generator=g).to(dtype).requires_grad_()
        weight = torch.randn(V, H, generator=g).to(dtype).requires_grad_()
        mask = torch.rand(3, 7, generator=g) < 0.6
        labels = torch.randint(V, (3, 7), generator=g)
        arguments = {"hidden": hidden, "weight": weight, "labels": labels, "advantages": torch.randn(3, generator=g)}
        output = linear_policy_loss(**(arguments | {"mask": mask} | kwargs))
        output.loss.backward()
        return output, hidden.grad, weight.grad

    def test_native_equals_the_reference(self) -> None:
        native, reference = self.call(impl="native"), self.call(impl="reference")
        torch.testing.assert_close(native[0].loss, reference[0].loss)
        torch.testing.assert_close(native[0].logps, reference[0].logps, atol=1e-5, rtol=1e-5)
        for a, b in zip(native[1:], reference[1:], strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)

    def test_auto_takes_native_where_it_can(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = sys.modules["outcome_rl_kernels.policy_loss"]  # the package has a function of this name
        monkeypatch.setattr(module, "fused_policy_loss", lambda *_: pytest.fail("native"))
        self.call(torch.float64)
        self.call(impl="reference")
        with pytest.raises(pytest.fail.Exception, match="native"):
            self.call()

    def test_all_masked_is_zero(self) -> None:
        output, hidden_grad, weight_grad = self.call(impl="native", mask=torch.zeros(3, 7, dtype=torch.bool))
        assert output.loss.item() == 0
        assert not hidden_grad.any()
        assert not weight_grad.any()

    def test_explicit_native_says_why_it_cannot(self) -> None:
        with pytest.raises(ValueError, match=r"logits must be float32 or bfloat16, got torch\.float64"):
            self.call(torch.float64, impl="native")

    def test_autocast(self) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            native, reference = self.call(impl="native"), self.call(impl="reference")
        torch.testing.assert_close(native[0].loss, reference[0].loss, atol=1e-2, rtol=1e-2)
        assert native[1].dtype == native[2].dtype == torch.float32

    def test_tied_weight_gets_both_gradients(self) -> None:
        g = torch.Generator().manual_seed(0)
        weight = torch.randn(V, H, generator=g).requires_grad_()
        labels = torch.randint(V, (2, 4), generator=g)
        grads = []
        for impl in ("native", "reference"):
            weight.grad = None
            hidden = torch.nn.functional.embedding(labels, weight).tanh()
            mask = torch.ones(2, 4, dtype=torch.bool)
            linear_policy_loss(hidden, weight, labels, torch.ones(2), mask, impl=impl).loss.backward()
            assert weight.grad is not None
            grads.append(weight.grad)
        torch.testing.assert_close(*grads, atol=1e-6, rtol=1e-4)
