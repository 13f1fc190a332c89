"""The edges of the row kernels, on the CPU and in Triton: ends of the range, broken logits, rows that are left out.

Triton's run on the GPU where there is one, else interpreted.
"""

import math

import pytest
import torch
from loss_cases import BACKENDS, GPU, ON_GPU
from torch import Tensor

from outcome_rl_kernels.loss.rows.api import row_kernels
from outcome_rl_kernels.loss.types import LogitRows

DEVICES = {"native": "cpu", "triton": GPU}
of_all_kernels = pytest.mark.parametrize(
    ("impl", "dtype"),
    [
        pytest.param(impl, dtype, marks=one.marks, id=f"{impl}-{dtype}")
        for one, halves in ((BACKENDS[1], [torch.bfloat16]), (ON_GPU, [torch.bfloat16, torch.float16]))
        for impl in one.values
        for dtype in (torch.float32, *halves)
    ],
)


def both_passes(
    impl: str, logits: Tensor, labels: Tensor, temperature: float = 1.0, active: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probabilities, entropies and the gradient of their sum, in float64."""
    device, kernels = DEVICES[impl], row_kernels(impl)
    rows = LogitRows(logits.to(device), labels.to(device), temperature, None if active is None else active.to(device))
    statistics, ones = kernels.row_statistics(rows), torch.ones(len(labels), device=device)
    gradient = torch.full_like(rows.logits_RV, math.nan)
    kernels.row_gradients(rows, statistics, ones, ones, gradient)
    return statistics.logps_R.cpu().double(), statistics.entropies_R.cpu().double(), gradient.cpu().double()


def normal_rows(count: int, vocabulary: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    return (3 * torch.randn(count, vocabulary, generator=g)).to(dtype), torch.randint(vocabulary, (count,), generator=g)


@of_all_kernels
def test_logits_at_the_ends_of_their_range(impl: str, dtype: torch.dtype) -> None:
    top = torch.finfo(dtype).max
    rows = [[top, 0.0, -top, -math.inf], [-top, -top, -top, -math.inf], [-top, top, top, 0.0]]
    logits = torch.tensor(rows, dtype=torch.float64).to(dtype)
    logps, entropies, gradient = both_passes(impl, logits, torch.tensor([0, 1, 2]), temperature=0.5)
    assert logps.tolist() == pytest.approx([0.0, -math.log(3), -math.log(2)])
    assert entropies.tolist() == pytest.approx([0.0, math.log(3), math.log(2)])
    assert gradient.isfinite().all()


@of_all_kernels
def test_probabilities_of_zero(impl: str, dtype: torch.dtype) -> None:
    logits = torch.tensor([[-math.inf, 0.0, 0.0], [0.0, -math.inf, 0.0]]).to(dtype)
    logps, entropies, gradient = both_passes(impl, logits, torch.tensor([1, 1]))  # the second label is impossible
    assert logps.tolist() == pytest.approx([-math.log(2), -math.inf])
    assert entropies.tolist() == pytest.approx([math.log(2)] * 2)
    assert gradient.tolist() == [pytest.approx(row, abs=1e-2) for row in ([0.0, 0.5, -0.5], [-0.5, 1.0, -0.5])]
    assert gradient[0, 0].abs() < 1e-35


@of_all_kernels
def test_impossible_tokens_may_fill_the_blocks_before_the_first_possible_one(impl: str, dtype: torch.dtype) -> None:
    logits, labels = normal_rows(3, 2000, dtype)
    logits[0, :1500], logits[1] = -math.inf, -math.inf
    labels[0] = 1999
    logps, entropies, gradient = both_passes(impl, logits, labels)
    assert logps[0].item() == pytest.approx(logits[0, 1500:].double().log_softmax(0)[-1].item(), abs=2e-6)
    for values in (logps, entropies, gradient.sum(dim=1)):  # a row without a possible token is not a number
        assert values.isfinite().tolist() == [True, False, True]


@of_all_kernels
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_stays_in_its_row(impl: str, dtype: torch.dtype, bad: float) -> None:
    logits, labels = normal_rows(3, 2100, dtype)
    logits[1, 2099] = bad
    logps, entropies, gradient = both_passes(impl, logits, labels)
    for values in (logps, entropies, gradient[:, 0]):
        assert values.isnan().tolist() == [False, True, False]
    assert gradient[1].isnan().all()
    assert gradient[[0, 2]].isfinite().all()


@of_all_kernels
@pytest.mark.parametrize("vocabulary", [13, 2064])
def test_inactive_rows_are_not_read_and_give_zeros(impl: str, dtype: torch.dtype, vocabulary: int) -> None:
    logits, labels = normal_rows(4, vocabulary, dtype)
    active = torch.tensor([True, False, True, False])
    whole = both_passes(impl, logits, labels)
    poisoned, unread = logits.masked_fill(~active[:, None], math.nan), labels.where(active, -(2**40))
    for found, expected in zip(both_passes(impl, poisoned, unread, active=active), whole, strict=True):
        assert torch.equal(found[active], expected[active])
        assert not found[~active].any()
