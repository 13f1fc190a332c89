"""Gradients of losses from a sampled backward pass against float64: their mean, their variance and their bits."""

from typing import Any

import pytest
import torch
from loss_cases import H, V, run, threads
from torch import Tensor

from outcome_rl_kernels import linear_policy_loss
from outcome_rl_kernels.backends import native_obstacle
from outcome_rl_kernels.loss.sampled import cpu as sampled_cpu

pytestmark = pytest.mark.skipif(native_obstacle() is not None, reason=str(native_obstacle()))


def inputs_of(token_loss: str, sequences: int = 8, vocabulary: int = V) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Operands and arguments of 12 tokens a sequence, with holes in the mask and every optional input."""
    g = torch.Generator().manual_seed(0)
    operands = {
        "hidden": torch.randn(sequences, 12, H, generator=g),
        "weight": torch.randn(vocabulary, H, generator=g),
        "bias": torch.randn(vocabulary, generator=g),
    }
    labels = torch.randint(vocabulary, (sequences, 12), generator=g)
    logits = 8 * (torch.nn.functional.linear(*operands.values()) / 8).tanh() / 0.7
    logps = logits.log_softmax(-1).gather(-1, labels[..., None])[..., 0]
    return operands, {
        "labels": labels,
        "advantages": torch.randn(sequences, generator=g),
        "mask": torch.rand(sequences, 12, generator=g) < 0.9,
        "answer_mask": torch.rand(sequences, 12, generator=g) < 0.2,
        "rollout_weights": torch.rand(sequences, 12, generator=g),
        "ref_logps": logps + 0.1 * torch.randn(sequences, 12, generator=g),
        "old_logps": logps + 0.05 * torch.randn(sequences, 12, generator=g),
        "token_loss": token_loss,
        "beta": 0.1,
        "entropy_coef": 0.05,
        "temperature": 0.7,
        "softcap": 8.0,
    }


def gradients(
    operands: dict[str, Tensor], dtype: torch.dtype = torch.float32, impl: str = "native", **arguments: Any
) -> list[Tensor]:
    output, found = run(linear_policy_loss, operands, dtype, set(operands), impl=impl, **arguments)
    assert output.metrics.get("sampled_rows", 1) > 0.5
    return [found[name].double() for name in operands]


@pytest.mark.parametrize("token_loss", ["ppo", "gspo"])  # of single tokens, and of sequences
@pytest.mark.parametrize("workspace", [None, 20 * V * 4])
def test_the_mean_of_seeds_approaches_the_exact_gradient(token_loss: str, workspace: int | None) -> None:
    operands, arguments = inputs_of(token_loss)
    exact = gradients(operands, torch.float64, "reference", **arguments)
    arguments |= {"workspace_bytes": workspace, "sample_below": 0.02}
    samples = [gradients(operands, sample_seed=seed, **arguments) for seed in range(64)]
    for truth, *drawn in zip(exact, *samples, strict=True):
        single = sum(float((sample - truth).square().sum()) for sample in drawn) / 64
        mean = float((sum(drawn) / 64 - truth).square().sum())
        assert single > 1e-6 * truth.square().sum()
        assert mean <= 1.5**2 * single / 64  # of independent errors it is 1 / 64 in expectation


def test_triton_gives_a_loss_with_gradients() -> None:
    operands, arguments = inputs_of("ppo", sequences=1, vocabulary=61)
    exact = gradients(operands, torch.float64, "reference", **arguments)
    found = gradients(operands, impl="triton", sample_below=0.03, sample_seed=0, **arguments)
    for ours, truth in zip(found, exact, strict=True):
        assert 1e-4 * truth.norm() < (ours - truth).norm() < 0.1 * truth.norm()


@pytest.mark.parametrize("cases", [160, pytest.param(4000, marks=pytest.mark.nightly)])
def test_the_squared_error_is_that_of_the_formula(cases: int) -> None:
    """Both gradients, of hidden states and weight, draw one point in each cell, as docs/math.md has it."""
    g = torch.Generator().manual_seed(0)
    excess = torch.stack([excess_error(case, g) for case in range(cases)])
    standard_error = excess.std(dim=0) / cases**0.5
    assert (excess.mean(dim=0).abs() <= 4.5 * standard_error).all()
    assert (standard_error <= 0.05).all()


def excess_error(seed: int, g: torch.Generator) -> Tensor:
    """Return measured minus expected squared errors of both gradients of a random case, over their bounds."""
    threshold, spread = 0.02 + 0.88 * torch.rand((), generator=g).item(), 3 * torch.rand((), generator=g).item()
    hidden = (spread * torch.randn(1, 12, H, generator=g)).double()
    weight = torch.randn(V, H, generator=g).double()
    labels, advantages = torch.randint(V, (1, 12), generator=g), torch.randn(1, 12, generator=g)
    mask = torch.ones_like(labels, dtype=torch.bool)

    def grads(dtype: torch.dtype, **options: Any) -> list[Tensor]:
        leaves = [x.to(dtype, copy=True).requires_grad_() for x in (hidden, weight)]
        linear_policy_loss(*leaves, labels, advantages, mask, loss_agg="token-sum", **options).loss.backward()
        return [leaf.grad.double() for leaf in leaves]

    p = (hidden[0] @ weight.T).softmax(dim=-1)
    p = p.masked_fill(torch.nn.functional.one_hot(labels[0], V).bool() | (p >= threshold), 0)  # what is sampled
    ends, cells = (p / threshold).cumsum(dim=-1)[:, None], torch.arange(int(1 / threshold) + 1)[:, None]
    lengths = (ends.minimum(cells + 1) - (ends - (p / threshold)[:, None]).maximum(cells)).clamp(min=0)  # (T, cells, V)
    scales, hidden_sizes = (threshold * advantages[0].double()).square(), hidden[0].square().sum(dim=-1)
    second = scales * (lengths @ weight.square().sum(dim=-1)).sum(dim=-1), scales * hidden_sizes * lengths.sum((1, 2))
    means = scales * (lengths @ weight).square().sum((1, 2)), scales * hidden_sizes * lengths.square().sum((1, 2))
    bounds = torch.stack([part.sum() for part in second])
    expected = bounds - torch.stack([part.sum() for part in means])
    exact = grads(torch.float64, impl="reference")
    draws = [grads(torch.float32, impl="native", sample_below=threshold, sample_seed=4 * seed + i) for i in range(4)]
    errors = [[(a - b).square().sum() for a, b in zip(draw, exact, strict=True)] for draw in draws]
    rounding = 1e-6 * torch.stack([truth.square().sum() for truth in exact])
    return (torch.tensor(errors).mean(dim=0) - expected) / (bounds + rounding)


def test_a_threshold_below_all_probabilities_keeps_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled_cpu, "LEAST_ROOM", V)
    operands, arguments = inputs_of("ppo")
    exact = gradients(operands, torch.float64, "reference", **arguments)
    found = gradients(operands, sample_below=1e-30, sample_seed=0, **arguments)
    for ours, truth in zip(found, exact, strict=True):
        assert (ours - truth).norm() <= 1e-5 * truth.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fp32_logits", [False, True])
def test_bits_depend_on_the_seed_and_on_nothing_else(dtype: torch.dtype, fp32_logits: bool) -> None:
    g = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(1, 400, 64, generator=g).to(dtype), torch.randn(2000, 64, generator=g).to(dtype) / 2
    labels, advantages = torch.randint(2000, (1, 400), generator=g), torch.randn(1, generator=g)
    mask = torch.rand(1, 400, generator=g) < 0.9

    def results(seed: int, number: int = 1, **options: Any) -> list[Tensor]:
        leaves = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        given = {"sample_below": 0.002, "sample_seed": seed, "fp32_logits": fp32_logits} | options
        with threads(number):
            output = linear_policy_loss(*leaves, labels, advantages, mask, impl="native", **given)
            output.loss.backward()
        return [output.loss.detach(), output.logps, *(leaf.grad for leaf in leaves)]

    def equal(a: list[Tensor], b: list[Tensor]) -> list[bool]:
        return [torch.equal(x, y) for x, y in zip(a, b, strict=True)]

    one = results(1)
    assert all(equal(one, results(1)))
    assert equal(one, results(2)) == [True, True, False, False]
    assert equal(one, results(1, sample_below=0.0)) == [True, True, False, False]
    assert all(equal(results(1, sample_below=0.0), results(2, sample_below=0)))
    # Products may round otherwise on two threads, and in chunks; then a choice at a boundary may differ, not more.
    for other in (results(1, number=2), results(1, rows="all"), results(1, workspace_bytes=100 * 2000 * 6)):
        for ours, theirs in zip(one, other, strict=True):
            assert (ours.double() - theirs.double()).norm() <= 1e-3 * ours.double().norm()


def flat_batch(rows: int = 6) -> tuple[Any, ...]:
    """Hidden states of zeros: every token has the same probability."""
    g = torch.Generator().manual_seed(0)
    hidden, weight = torch.zeros(1, rows, H), torch.randn(2000, H, generator=g)
    labels = torch.randint(2000, (1, rows), generator=g)
    return hidden, weight, labels, torch.randn(1, rows, generator=g), torch.ones_like(labels, dtype=torch.bool)


def test_a_batch_that_needs_many_entries_takes_dense_products_on_the_cpu() -> None:
    found = []
    for options in ({}, {"sample_below": 1e-4, "sample_seed": 0}):
        hidden, weight, *others = flat_batch()
        leaves = hidden.requires_grad_(), weight.requires_grad_()
        output = linear_policy_loss(*leaves, *others, impl="native", entropy_coef=0.1, **options)
        output.loss.backward()
        found.append((output.loss, *(leaf.grad for leaf in leaves)))
    assert output.metrics["sampled_entries"] == output.metrics["sampled_rows"] == 0
    for dense, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, dense, rtol=1e-6, atol=1e-9)


def test_a_row_that_needs_many_entries_gets_a_higher_threshold() -> None:
    """On a GPU, where nothing can be decided by numbers of a batch; on the CPU, among rows that need few."""
    for impl, peaked in (("native", 5), ("triton", 0)):
        hidden, weight, *others = flat_batch(6 if impl == "native" else 2)
        hidden[0, :peaked] = 20 * weight[:peaked]
        leaves = hidden.requires_grad_(), weight
        output = linear_policy_loss(*leaves, *others, impl=impl, sample_below=2e-3, sample_seed=0)
        output.loss.backward()
        assert float(output.metrics["sampled_rows"]) == pytest.approx(peaked / 6)
        if impl == "triton":
            assert 58 <= output.metrics["sampled_entries"] <= 64
            label, advantage = others[0][0, 0], others[1][0, 0]
            exact = advantage / 2 * (weight.detach().mean(dim=0) - weight.detach()[label])
            assert (hidden.grad[0, 0] - exact).norm() < exact.norm()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sample_below": 1.0}, ValueError, "sample_below .*got 1"),
        ({"sample_below": -0.1}, ValueError, "sample_below .*got -0.1"),
        ({"sample_below": 0.1}, ValueError, "sample_seed must be given with sample_below=0.1"),
        ({"sample_seed": 1.5}, ValueError, "sample_seed .*got 1.5"),
        ({"sample_seed": 2**63}, ValueError, "sample_seed must be an int64"),
        ({"sample_below": 0.1, "support": (torch.arange(7), torch.arange(6))}, ValueError, "sample_below and support"),
    ],
)
def test_refuses(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        linear_policy_loss(*flat_batch(), **options)


def test_nothing_is_sampled_without_a_gradient() -> None:
    hidden, weight, *others = flat_batch()
    options = {"sample_below": 0.01, "sample_seed": 3}
    without = linear_policy_loss(hidden, weight, *others, **options)
    assert without.metrics["sampled_entries"] == 0  # nothing has a gradient
    output = linear_policy_loss(hidden.requires_grad_(), weight, *others, **options)
    output.loss.backward()
    assert torch.equal(output.loss, without.loss)
    assert 50 < output.metrics["sampled_entries"] <= 103
