"""The GPU's path through the fused losses, without a GPU.

The losses run on CPU tensors with the Triton row kernels, interpreted; what the host waits for is in
`test_calls_on_gpu.py`.
"""

from typing import Any

import pytest
import torch
from loss_cases import make_case

pytest.importorskip("triton", reason="Triton has no build for this platform")

from outcome_rl_kernels import linear_policy_loss, policy_loss
from outcome_rl_kernels.backends import triton_obstacle

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: its own path runs there")


def test_the_interpreter_is_on() -> None:
    assert triton_obstacle(torch.device("cpu")) is None


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


@pytest.mark.parametrize("loss_agg", ["token-mean", "token-sum"])
def test_float16_keeps_the_gradients_of_a_short_batch(loss_agg: Any) -> None:
    """Brought down to a thirty-second, most of these entries would be rounded to a few bits."""
    g = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(2, 4, 4096, generator=g).half(), torch.zeros(2, 4, dtype=torch.int64)
    grads = []
    for dtype, impl in ((torch.float64, "reference"), (torch.float16, "triton")):
        leaf = logits.to(dtype).requires_grad_()
        options: dict[str, Any] = {"loss_agg": loss_agg, "impl": impl}
        policy_loss(leaf, labels, torch.tensor([1.0, -1.0]), torch.ones_like(labels), **options).loss.backward()
        assert leaf.grad is not None
        grads.append(leaf.grad[..., 1:].double())  # without the labels' entries, beside which the others vanish
    exact, ours = grads
    step = 2.0**-10 * exact.abs() + 2.0**-24  # of float16, to which the interpreter cuts off
    assert ((ours - exact).abs() <= step).all()
