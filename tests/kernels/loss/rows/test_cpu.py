"""Errors that only the C++ row kernels can have; test_api.py has their values and gradients."""

import math
import os
import re
import shutil
import subprocess
import sys

import pytest
import torch
from logit_rows import differentiate, logprobs, rows_of
from loss_cases import misaligned, needs_native, threads
from torch import Tensor

from outcome_rl_kernels.backends import native_library
from outcome_rl_kernels.loss.reference import logps_and_entropies
from outcome_rl_kernels.loss.rows.cpu import row_gradients, row_statistics
from outcome_rl_kernels.loss.types import LogitRows

pytestmark = needs_native

DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("size", [20.0, 200.0, 2000.0])
def test_no_probability_exceeds_one(size: float) -> None:
    """Large logits at a temperature: their difference is taken before it is scaled."""
    logits = torch.full((64, 500), -size)
    labels = torch.arange(64)
    logits[labels, labels] = torch.linspace(0.9 * size, size, 64)
    logps, _ = logprobs("native", logits, labels, temperature=0.7)
    assert logps.max() <= 0
    exact, _ = logps_and_entropies(logits.double(), labels, 0.7)
    torch.testing.assert_close(logps, exact, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gap", [60.0, 80.0, 86.0, 100.0, 1e4, math.inf])
def test_no_gradient_is_denormal(dtype: torch.dtype, gap: float) -> None:
    """A matrix product of such numbers takes 90 times as long."""
    logits, labels = rows_of(3, 700, dtype)
    logits[:, 10:] -= gap
    gradient = torch.empty_like(logits)
    coefficients = torch.tensor([1.0, 1e-4, 1e-8])
    differentiate("native", logits, labels.clamp(max=9), 0.8, coefficients, 0.1 * coefficients, gradient)
    assert not ((gradient != 0) & (gradient.abs() < torch.finfo(dtype).tiny)).any()
    assert gradient[:, :10].any(dim=1).all()


def strided(tensor: Tensor) -> Tensor:
    return tensor.repeat_interleave(2, dim=-1)[..., ::2]


@pytest.mark.parametrize("dtype", DTYPES)
def test_addresses_need_no_alignment_and_may_have_gaps(dtype: torch.dtype) -> None:
    logits, labels = rows_of(3, 700, dtype)
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
    differentiate("native", logits, labels, 1.0, ones, 0.1 * ones, gradient)
    return [*logprobs("native", logits, labels), gradient]


def test_the_number_of_threads_changes_nothing() -> None:
    logits, labels = rows_of(7, 70_000, torch.float32)  # enough for a thread a row
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
from outcome_rl_kernels.loss.reference import logps_and_entropies
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
