"""The C++ passes over rows of logits against float64."""

import math
import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from outcome_rl_kernels.native import native_status

pytestmark = pytest.mark.skipif(not native_status()[0], reason=f"the native library: {native_status()[1]}")

if native_status()[0]:
    from outcome_rl_kernels.logit_rows import row_statistics, write_row_gradients

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
def test_statistics(vocabulary: int, dtype: torch.dtype, temperature: float) -> None:
    logits, labels = rows(5, vocabulary, dtype)
    before = logits.clone()
    got = row_statistics(logits, labels, temperature)
    logps, entropies = exact(logits, labels, temperature)
    torch.testing.assert_close(got.logps_R.double(), logps, atol=2e-6, rtol=1e-6)
    torch.testing.assert_close(got.entropies_R.double(), entropies, atol=2e-6, rtol=1e-6)
    lse = got.maxima_R.double() + got.log_sums_R
    torch.testing.assert_close(lse, (logits.double() / temperature).logsumexp(-1), atol=2e-6, rtol=1e-6)
    assert torch.equal(logits, before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("with_entropy", [False, True])
def test_gradients(vocabulary: int, dtype: torch.dtype, with_entropy: bool) -> None:
    logits, labels = rows(5, vocabulary, dtype)
    temperature = 0.8
    g = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0])
    e = torch.tensor([0.1, 0.0, -0.3, 0.2, 1.0]) if with_entropy else None
    truth = logits.double().requires_grad_()
    logps, entropies = exact(truth, labels, temperature)
    ((logps * g).sum() + (0 if e is None else (entropies * e).sum())).backward()
    assert truth.grad is not None
    write_row_gradients(logits, labels, temperature, row_statistics(logits, labels, temperature), g, e)
    # The coefficients are the scale: with one logit the gradient itself is 0.
    error = (logits.double() - truth.grad).norm() / g.norm()
    # Half an ulp of the dtype is what rounding the exact gradient would cost.
    assert error <= (4e-6 if dtype == torch.float32 else torch.finfo(dtype).eps), f"{error:.1e}"
    assert not logits[3].any() or with_entropy  # a row with zero coefficients becomes exactly zero


def test_labels_and_coefficients_may_be_strided() -> None:
    logits, labels = rows(5, 13, torch.float32)
    grads = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0])
    strided_labels, strided_grads = labels.repeat_interleave(2)[::2], grads.repeat_interleave(2)[::2]
    plain, strided = row_statistics(logits, labels, 1.0), row_statistics(logits, strided_labels, 1.0)
    assert torch.equal(plain.logps_R, strided.logps_R)
    expected = logits.clone()
    write_row_gradients(expected, labels, 1.0, plain, grads, grads)
    write_row_gradients(logits, strided_labels, 1.0, strided, strided_grads, strided_grads)
    assert torch.equal(logits, expected)


def test_the_number_of_threads_changes_nothing() -> None:
    logits, labels = rows(7, 70_000, torch.float32)  # enough for a thread a row
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3, 16):  # 16: more threads than rows
            torch.set_num_threads(count)
            statistics = row_statistics(logits, labels, 1.0)
            written = logits.clone()
            write_row_gradients(written, labels, 1.0, statistics, torch.ones(7), None)
            results.append((*statistics, written))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


NO_THREADS = """
import resource, threading
import torch
from outcome_rl_kernels.logit_rows import row_statistics

logits, labels = torch.arange(7 * 70_000.0).sin().view(7, 70_000), torch.zeros(7, dtype=torch.int64)
torch.set_num_threads(1)
expected = row_statistics(logits, labels, 1.0)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**20, -1))
try:
    threading.Thread(target=print).start()
except RuntimeError:
    pass
else:
    raise SystemExit("there was room for a thread")
torch.set_num_threads(7)
got = row_statistics(logits, labels, 1.0)
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
    got = row_statistics(logits, torch.tensor([0, 1]), 1.0)
    assert got.logps_R.tolist() == [0.0, 0.0]
    assert got.entropies_R.abs().max() < 1e-30


@pytest.mark.parametrize("dtype", DTYPES)
def test_minus_infinity_is_probability_zero(dtype: torch.dtype) -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0], [0.0, -math.inf, 0.0]]).to(dtype)
    labels = torch.tensor([0, 1])
    statistics = row_statistics(logits, labels, 1.0)
    assert statistics.logps_R.tolist() == pytest.approx([-math.log(2), -math.inf])
    assert statistics.entropies_R.tolist() == pytest.approx([math.log(2)] * 2)
    write_row_gradients(logits, labels, 1.0, statistics, torch.ones(2), torch.ones(2))
    assert logits[0].tolist() == pytest.approx([0.5, 0.0, -0.5], abs=1e-2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_reaches_the_statistics(dtype: torch.dtype, bad: float) -> None:
    logits, labels = rows(3, 5000, dtype)
    logits[1, 4321] = bad
    statistics = row_statistics(logits, labels, 1.0)
    assert statistics.logps_R.isnan().tolist() == [False, True, False]
    write_row_gradients(logits, labels, 1.0, statistics, torch.ones(3), None)
    assert logits[1].isnan().all()
    assert logits[[0, 2]].isfinite().all()
