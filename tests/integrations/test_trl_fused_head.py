"""TRL's chunked log-probabilities and ours: signature, values, gradients, and a training run of TRL's own trainer."""

import inspect
from typing import Any

import pytest
import torch
import trl.kernels
import trl.trainer.utils
from torch import Tensor
from trl import GRPOTrainer
from trl.kernels import ChunkedLogProbFunction as TRLs
from trl_runs import Gradients, Make, losses

from outcome_rl.integrations.trl.fused_head import use_fused_head
from outcome_rl_kernels.loss.chunked_logprob import ChunkedLogProbFunction

N, H, V = 33, 16, 83


def test_the_signature_is_trls() -> None:
    ours, theirs = inspect.signature(ChunkedLogProbFunction.apply), inspect.signature(TRLs.forward)
    named = {name: p.default for name, p in theirs.parameters.items() if name != "ctx"}
    assert {name: p.default for name, p in ours.parameters.items()} == named


def run(function: Any, dtype: torch.dtype, *, in_autocast: bool) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    learned = [
        (torch.randn(shape, generator=g) / scale).to(dtype).requires_grad_()
        for shape, scale in (((N, H), 1), ((V, H), 4), ((V,), 8))
    ]
    targets, weights = torch.randint(V, (N,), generator=g), torch.randn(2, N, generator=g)
    with torch.autocast("cpu", torch.bfloat16, enabled=in_autocast):
        outputs = function.apply(*learned, targets, 0.9, 20, None, 1.3)
    (weights[0] * outputs[0] + weights[1] * outputs[1]).sum().backward()
    return [*(output.detach() for output in outputs), *(tensor.grad for tensor in learned)]


@pytest.mark.parametrize(
    ("dtype", "in_autocast", "rtol"),
    [(torch.float32, False, 1e-5), (torch.bfloat16, False, 2**-7), (torch.float32, True, 2**-7)],
)
def test_values_and_gradients_are_trls(dtype: torch.dtype, in_autocast: bool, rtol: float) -> None:
    ours, theirs = (run(f, dtype, in_autocast=in_autocast) for f in (ChunkedLogProbFunction, TRLs))
    for mine, trls in zip(ours, theirs, strict=True):
        assert mine.dtype == trls.dtype
        if mine.is_floating_point():
            size = float(trls.abs().max())
            torch.testing.assert_close(mine, trls, rtol=rtol, atol=4 * rtol * size)
        else:
            assert torch.equal(mine, trls)


def test_a_trl_without_that_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(trl.kernels, "ChunkedLogProbFunction")
    with pytest.raises(ImportError, match=r"use_fused_head needs trl\.kernels\.ChunkedLogProbFunction"):
        use_fused_head()


def test_trls_trainer_learns_the_same_with_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses and gradients of `GRPOTrainer` stay the same."""
    calls = []
    apply = ChunkedLogProbFunction.apply

    def counted(*arguments: Any) -> Any:
        calls.append(len(arguments[0]))
        return apply(*arguments)

    monkeypatch.setattr(ChunkedLogProbFunction, "apply", staticmethod(counted))
    monkeypatch.setattr(trl.trainer.utils, "_ChunkedLogProbFunction", TRLs)  # restored after the test
    found = []
    for install in (lambda: None, use_fused_head):
        install()
        trainer = make(trainer_class=GRPOTrainer, beta=0.1, num_iterations=2, optim="sgd", learning_rate=0.1)
        gradients = Gradients()
        trainer.add_callback(gradients)
        trainer.train()
        found.append((losses(trainer), gradients.of_steps, len(calls)))
    (theirs, trls_gradients, trls_calls), (ours, our_gradients, our_calls) = found
    assert our_calls > trls_calls == 0
    assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)
    assert max(gradient.abs().max() for gradient in trls_gradients[1].values()) > 1e-3
    for one, other in zip(our_gradients, trls_gradients, strict=True):
        for name, gradient in other.items():
            torch.testing.assert_close(one[name], gradient, rtol=1e-4, atol=1e-6)
