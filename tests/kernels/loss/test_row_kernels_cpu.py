"""The C++ passes over rows of logits against float64, and their derivatives where those jump against autograd's."""

import math
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from loss_cases import needs_native
from torch import Tensor

from outcome_rl_kernels.loss.reference import LossSettings, TokenBatch, logps_and_entropies, token_sums
from outcome_rl_kernels.loss.row_kernels import PolicyTokens, RowTerms
from outcome_rl_kernels.loss.row_kernels_cpu import logprob_rows, logprob_rows_backward, policy_rows

pytestmark = needs_native

# One logit; a prime; one below, at and above the block of 512 that is summed in float32; a real vocabulary.
VOCABULARIES = [1, 2, 13, 511, 512, 513, 32001, 151936]
DTYPES = [torch.float32, torch.bfloat16]


def rows(count: int, vocabulary: int, dtype: torch.dtype, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(vocabulary)
    logits = scale * torch.randn(count, vocabulary, generator=g)
    labels = torch.randint(vocabulary, (count,), generator=g)
    labels[0], labels[-1] = 0, vocabulary - 1  # the ends of a row
    return logits.to(dtype), labels


def exact(logits: Tensor, labels: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    log_probs = (logits.double() / temperature).log_softmax(-1)
    return log_probs.gather(1, labels[:, None])[:, 0], -(log_probs.exp() * log_probs).sum(-1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_values(vocabulary: int, dtype: torch.dtype, temperature: float) -> None:
    logits, labels = rows(5, vocabulary, dtype)
    before = logits.clone()
    for got, want in zip(logprob_rows(logits, labels, temperature), exact(logits, labels, temperature), strict=True):
        torch.testing.assert_close(got.double(), want, atol=2e-6, rtol=1e-6)
    assert torch.equal(logits, before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("with_entropy", [False, True])
@pytest.mark.parametrize("target", ["the logits", "a tensor of its own", "bfloat16"])
def test_gradients(vocabulary: int, dtype: torch.dtype, with_entropy: bool, target: str) -> None:
    logits, labels = rows(5, vocabulary, dtype)
    temperature = 0.8
    g = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0])
    e = torch.tensor([0.1, 0.0, -0.3, 0.2, 1.0]) if with_entropy else None
    truth = logits.double().requires_grad_()
    logps, entropies = exact(truth, labels, temperature)
    ((logps * g).sum() + (0 if e is None else (entropies * e).sum())).backward()
    assert truth.grad is not None
    gradient = logits if target == "the logits" else torch.full_like(logits, math.nan)
    gradient = gradient.bfloat16() if target == "bfloat16" else gradient
    logprob_rows_backward(logits, labels, temperature, g, e, gradient)
    # The coefficients are the scale: with one logit the gradient itself is 0.
    error = (gradient.double() - truth.grad).norm() / g.norm()
    # Half an ulp of the dtype is what rounding the exact gradient would cost.
    assert error <= (4e-6 if gradient.dtype == torch.float32 else torch.finfo(torch.bfloat16).eps), f"{error:.1e}"
    assert not gradient[3].any() or with_entropy  # a row with zero coefficients becomes exactly zero


def test_labels_and_coefficients_may_be_strided() -> None:
    logits, labels = rows(5, 13, torch.float32)
    grads = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0])
    strided_labels, strided_grads = labels.repeat_interleave(2)[::2], grads.repeat_interleave(2)[::2]
    for plain, strided in zip(
        logprob_rows(logits, labels, 1.0), logprob_rows(logits, strided_labels, 1.0), strict=True
    ):
        assert torch.equal(plain, strided)
    gradients = [torch.empty_like(logits) for _ in range(2)]
    logprob_rows_backward(logits, labels, 1.0, grads, grads, gradients[0])
    logprob_rows_backward(logits, strided_labels, 1.0, strided_grads, strided_grads, gradients[1])
    assert torch.equal(*gradients)


def results(logits: Tensor, labels: Tensor) -> list[Tensor]:
    """Of all three passes."""
    ones = torch.ones(len(labels))
    tokens = PolicyTokens(labels, ones, ones, old_logps_R=-10 * ones)
    gradients = torch.empty_like(logits), torch.empty_like(logits)
    terms = policy_rows(logits, tokens, LossSettings(entropy_coef=0.1), gradients[0])
    logprob_rows_backward(logits, labels, 1.0, ones, ones, gradients[1])
    return [*logprob_rows(logits, labels, 1.0), terms, *gradients]


def test_the_number_of_threads_changes_nothing() -> None:
    logits, labels = rows(7, 70_000, torch.float32)  # enough for a thread a row
    threads = torch.get_num_threads()
    try:
        found = []
        for count in (1, 2, 3, 16):  # 16: more threads than rows
            torch.set_num_threads(count)
            found.append(results(logits, labels))
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


NO_THREADS = """
import resource, threading
import torch
from outcome_rl_kernels.loss.row_kernels_cpu import logprob_rows

logits, labels = torch.arange(7 * 70_000.0).sin().view(7, 70_000), torch.zeros(7, dtype=torch.int64)
torch.set_num_threads(1)
expected = logprob_rows(logits, labels, 1.0)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**20, -1))
try:
    threading.Thread(target=print).start()
except RuntimeError:
    pass
else:
    raise SystemExit("there was room for a thread")
torch.set_num_threads(7)
got = logprob_rows(logits, labels, 1.0)
assert all(map(torch.equal, got, expected))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits its own memory by way of Linux's /proc")
def test_without_room_for_threads_the_caller_does_the_work() -> None:
    command, environment = [sys.executable, "-c", NO_THREADS], os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_logits_do_not_overflow(dtype: torch.dtype) -> None:
    logits = torch.tensor([[1e4, 0.0, -1e4], [-3e38, 3e38, 0.0]]).to(dtype)
    logps, entropies = logprob_rows(logits, torch.tensor([0, 1]), 1.0)
    assert logps.tolist() == [0.0, 0.0]
    assert entropies.abs().max() < 1e-30


@pytest.mark.parametrize("dtype", DTYPES)
def test_minus_infinity_is_probability_zero(dtype: torch.dtype) -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0], [0.0, -math.inf, 0.0]]).to(dtype)
    labels = torch.tensor([0, 1])
    logps, entropies = logprob_rows(logits, labels, 1.0)
    assert logps.tolist() == pytest.approx([-math.log(2), -math.inf])
    assert entropies.tolist() == pytest.approx([math.log(2)] * 2)
    logprob_rows_backward(logits, labels, 1.0, torch.ones(2), torch.ones(2), logits)
    assert logits[0].tolist() == pytest.approx([0.5, 0.0, -0.5], abs=1e-2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_stays_in_its_row(dtype: torch.dtype, bad: float) -> None:
    logits, labels = rows(3, 5000, dtype)
    logits[1, 4321] = bad
    for values in results(logits, labels):
        if values.shape == logits.shape:
            assert values[1].isnan().all()
            assert values[[0, 2]].isfinite().all()
        elif values.dim() == 1:
            assert values.isnan().tolist() == [False, True, False]


# --- the policy's terms ---


def test_rows_that_are_not_active_are_not_read() -> None:
    logits, labels = rows(4, 700, torch.float32)
    active = torch.tensor([True, False, True, False])
    ones = torch.ones(4)
    gradients = torch.full_like(logits, math.nan)
    poisoned = logits.masked_fill(~active[:, None], math.nan)
    tokens = PolicyTokens(labels.where(active, -(2**40)), ones, ones, active_R=active)
    terms = policy_rows(poisoned, tokens, LossSettings(), gradients)
    assert not terms[:, ~active].any()
    assert not gradients[~active].any()
    expected = torch.empty_like(logits)
    whole = policy_rows(logits, PolicyTokens(labels, ones, ones), LossSettings(), expected)
    assert torch.equal(terms[:, active], whole[:, active])
    assert torch.equal(gradients[active], expected[active])


FAR = 80.0  # exp(-80) is lost beside 1, so the log-probability of a logit -80 beside 0 is -80 exactly, in any precision

# On each of these bounds the derivative jumps, and autograd takes one side, or the middle.
TIES: list[dict[str, Any]] = [
    {"old": 0.0, "epsilon_low": 0.0, "epsilon_high": 0.0},  # ratio 1 on both clip bounds
    {"old": 0.0, "epsilon_low": 0.0},
    {"old": 0.0, "epsilon_high": 0.0},
    {"old": 0.5, "log_ratio_clamp": 0.5},
    {"old": -0.5, "log_ratio_clamp": 0.5},
    {"old": 0.5, "delta": math.exp(0.5), "epsilon_high": 9.0},
    {"old": 0.5, "delta": math.exp(0.5), "epsilon_high": math.exp(0.5) - 1},
    {"ref": 0.5, "log_ratio_clamp": 0.5},
    {"ref": -0.5, "log_ratio_clamp": 0.5, "kl_penalty": "k2"},
    {"ref": 0.5, "kl_penalty": "k1", "kl_clamp": 0.5},
    {"ref": -0.5, "kl_penalty": "k1", "kl_clamp": 0.5},
    {"ref": 0.5, "kl_penalty": "k2", "kl_clamp": 0.125},
    {"ref": 0.0, "kl_penalty": "k3"},
]


@pytest.mark.parametrize("advantage", [-1.5, 0.0, 1.5])
@pytest.mark.parametrize("tie", TIES, ids=str)
def test_derivatives_at_ties_are_those_of_autograd(tie: dict[str, Any], advantage: float) -> None:
    """`old` and `ref`: how far the policy's log-probability is above theirs."""
    options = {name: value for name, value in tie.items() if name not in ("old", "ref")}
    settings = LossSettings(beta=0.3, **options)
    logits = torch.tensor([[0.0, -FAR]], dtype=torch.float64).requires_grad_()
    columns = {
        f"{name}_logps": torch.tensor([-FAR - tie[name]], dtype=torch.float64) for name in ("old", "ref") if name in tie
    }
    one, label = torch.ones(1, dtype=torch.float64), torch.tensor([1])
    batch = TokenBatch(
        label,
        advantage * one,
        one.bool(),
        torch.zeros(1, dtype=torch.int64),
        1,
        1,
        **{f"{name}_N": column for name, column in columns.items()},
    )
    sums = token_sums(*logps_and_entropies(logits, label, 1.0), batch, one, settings)
    sums.loss.backward()
    assert logits.grad is not None
    tokens = PolicyTokens(
        label,
        torch.tensor([advantage]),
        torch.ones(1),
        **{f"{name}_R": column.float() for name, column in columns.items()},
    )
    gradient = torch.empty(1, 2)
    terms = RowTerms(*policy_rows(logits.detach().float(), tokens, settings, gradient))
    assert terms.losses.item() == pytest.approx(sums.loss.item(), rel=1e-6, abs=1e-9)
    assert terms.clipped.item() == sums.clipped.item()
    assert gradient[0, 1].item() == pytest.approx(logits.grad[0, 1].item(), rel=1e-6, abs=1e-9)


def test_the_policy_may_be_certain_of_another_token() -> None:
    """A label of probability 0 has log-probability -inf, ratio 0, and the gradient of a sum of one."""
    logits = torch.tensor([[0.0, -math.inf]])
    tokens = PolicyTokens(torch.tensor([1]), torch.ones(1), torch.ones(1), old_logps_R=torch.tensor([-1.0]))
    gradient = torch.empty(1, 2)
    terms = RowTerms(*policy_rows(logits, tokens, LossSettings(), gradient))
    assert (terms.logps.item(), terms.ratios.item(), terms.losses.item()) == (-math.inf, 0, 0)
    assert not gradient.any()
