"""The C++ row kernels against float64."""

import math
import os
import re
import shutil
import subprocess
import sys

import pytest
import torch
from loss_cases import misaligned, needs_native, threads
from torch import Tensor

from outcome_rl_kernels.backends import native_library
from outcome_rl_kernels.loss.rows.cpu import row_gradients, row_statistics
from outcome_rl_kernels.loss.types import LogitRows

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


def logprobs(logits: Tensor, labels: Tensor, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    statistics = row_statistics(LogitRows(logits, labels, temperature))
    return statistics.logps_R, statistics.entropies_R


def differentiate(
    logits: Tensor, labels: Tensor, temperature: float, g: Tensor, e: Tensor | None, gradient: Tensor
) -> None:
    """Write the gradient of the sum of `g` times log-probabilities and `e` times entropies."""
    rows = LogitRows(logits, labels, temperature)
    row_gradients(rows, row_statistics(rows), g, e, gradient)


@pytest.mark.parametrize("size", [20.0, 200.0, 2000.0])
def test_no_probability_exceeds_one(size: float) -> None:
    """Large logits at a temperature: their difference is taken before it is scaled."""
    logits = torch.full((64, 500), -size)
    labels = torch.arange(64)
    logits[labels, labels] = torch.linspace(0.9 * size, size, 64)
    logps, _ = logprobs(logits, labels, temperature=0.7)
    assert logps.max() <= 0
    torch.testing.assert_close(logps, exact(logits, labels, 0.7)[0], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("with_entropy", [False, True])
@pytest.mark.parametrize("target", ["the logits", "a tensor of its own", "bfloat16"])
def test_values_and_gradients(vocabulary: int, dtype: torch.dtype, with_entropy: bool, target: str) -> None:
    logits, labels = rows(5, vocabulary, dtype)
    before, temperature = logits.clone(), 0.8
    g = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0])
    e = torch.tensor([0.1, 0.0, -0.3, 0.2, 1.0]) if with_entropy else None
    truth = logits.double().requires_grad_()
    logps, entropies = exact(truth, labels, temperature)
    ((logps * g).sum() + (0 if e is None else (entropies * e).sum())).backward()
    for got, want in zip(logprobs(logits, labels, temperature), (logps.detach(), entropies.detach()), strict=True):
        torch.testing.assert_close(got, want, atol=2e-6, rtol=1e-6)
    assert torch.equal(logits, before)
    gradient = logits if target == "the logits" else torch.full_like(logits, math.nan)
    gradient = gradient.bfloat16() if target == "bfloat16" else gradient
    differentiate(logits, labels, temperature, g, e, gradient)
    # The coefficients are the scale: with one logit the gradient itself is 0.
    error = (gradient.double() - truth.grad).norm() / g.norm()
    # Half an ulp of the dtype is what rounding the exact gradient would cost.
    assert error <= (4e-6 if gradient.dtype == torch.float32 else torch.finfo(torch.bfloat16).eps), f"{error:.1e}"
    assert not gradient[3].any() or with_entropy  # a row with zero coefficients becomes exactly zero


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gap", [60.0, 80.0, 86.0, 100.0, 1e4, math.inf])
def test_no_gradient_is_denormal(dtype: torch.dtype, gap: float) -> None:
    """A matrix product of such numbers takes 90 times as long."""
    logits, labels = rows(3, 700, dtype)
    logits[:, 10:] -= gap
    gradient = torch.empty_like(logits)
    coefficients = torch.tensor([1.0, 1e-4, 1e-8])
    differentiate(logits, labels.clamp(max=9), 0.8, coefficients, 0.1 * coefficients, gradient)
    assert not ((gradient != 0) & (gradient.abs() < torch.finfo(dtype).tiny)).any()
    assert gradient[:, :10].any(dim=1).all()


def strided(tensor: Tensor) -> Tensor:
    return tensor.repeat_interleave(2, dim=-1)[..., ::2]


@pytest.mark.parametrize("dtype", DTYPES)
def test_addresses_need_no_alignment_and_may_have_gaps(dtype: torch.dtype) -> None:
    logits, labels = rows(3, 700, dtype)
    grads, active = torch.tensor([1.0, -2.0, 0.5]), torch.tensor([True, False, True])
    found = []
    for change in (torch.clone, misaligned, strided):
        given = LogitRows(change(logits), change(labels), 0.8, active)
        statistics, gradient = row_statistics(given), given.logits_RV  # over the logits
        row_gradients(given, statistics, change(grads), change(grads), gradient)
        found.append((*statistics, gradient))
    assert all(map(torch.equal, found[0], found[1]))
    assert all(map(torch.equal, found[0], found[2]))


def results(logits: Tensor, labels: Tensor) -> list[Tensor]:
    """Both passes."""
    ones, gradient = torch.ones(len(labels)), torch.empty_like(logits)
    differentiate(logits, labels, 1.0, ones, 0.1 * ones, gradient)
    return [*logprobs(logits, labels), gradient]


def test_the_number_of_threads_changes_nothing() -> None:
    logits, labels = rows(7, 70_000, torch.float32)  # enough for a thread a row
    found = []
    for count in (1, 2, 3, 16):  # 16: more threads than rows
        with threads(count):
            found.append(results(logits, labels))
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


NO_THREADS = """
import resource, threading
import torch
from outcome_rl_kernels.loss.types import LogitRows
from outcome_rl_kernels.backends import native_library
from outcome_rl_kernels.loss.rows.cpu import row_statistics

logits, labels = torch.arange(7 * 70_000.0).sin().view(7, 70_000), torch.zeros(7, dtype=torch.int64)
torch.set_num_threads(1)
rows = LogitRows(logits, labels, 1.0)
expected = row_statistics(rows)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**20, -1))
try:
    threading.Thread(target=print).start()
except RuntimeError:
    pass
else:
    raise SystemExit("there was room for a thread")
torch.set_num_threads(7)
got = row_statistics(rows)
assert all(map(torch.equal, got, expected))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits its own memory by way of Linux's /proc")
def test_without_room_for_threads_the_caller_does_the_work() -> None:
    command, environment = [sys.executable, "-c", NO_THREADS], os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump, which comes with a compiler")
def test_every_clone_is_vectorised() -> None:
    listing = subprocess.run(
        ["objdump", "--disassemble", "--demangle", "--no-show-raw-insn", native_library()._name],
        text=True,
        check=True,
        capture_output=True,
    ).stdout
    functions = {body.partition(">:\n")[0]: body for body in listing.split("\n\n")}
    exponentials = {
        name: body
        for name, body in functions.items()
        if re.search(r"(block_sums|write_gradients)<.*\[clone \.arch", name)
    }
    if not exponentials:
        pytest.skip("this compiler makes no clones for levels of x86-64")
    for name, body in exponentials.items():
        assert len(re.findall(r"\bvf?n?m(?:ul|add)\w*ps\b", body)) >= 8, f"{name} has no products of vectors"
