"""Log-probabilities and entropies of the specification against numbers worked out by hand, in float64."""

import math

import torch
from torch import Tensor

from outcome_rl_kernels.loss.reference import logps_and_entropies, reference_logprobs

F64 = torch.float64


def vec(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64)


def test_uniform_and_peaked_rows() -> None:
    logits = torch.tensor([[0.0, 0, 0, 0], [math.log(3), 0, 0, -math.inf]], dtype=F64)
    logps, entropies = logps_and_entropies(logits, torch.tensor([2, 0]), 1.0)
    torch.testing.assert_close(logps, vec(math.log(1 / 4), math.log(3 / 5)))
    peaked = -(0.6 * math.log(0.6) + 2 * 0.2 * math.log(0.2))
    torch.testing.assert_close(entropies, vec(math.log(4), peaked))


def test_temperature_divides_the_logits() -> None:
    logps, _ = logps_and_entropies(vec(2 * math.log(3), 0)[None], torch.tensor([0]), 2.0)
    torch.testing.assert_close(logps, vec(math.log(3 / 4)))


def test_half_precision_is_upcast() -> None:
    logits = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0)).bfloat16()
    labels = torch.tensor([0, 1, 2])
    got, _ = logps_and_entropies(logits, labels, 1.0)
    want, _ = logps_and_entropies(logits.double(), labels, 1.0)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=1e-6)


def test_inactive_tokens_are_zero_and_never_read() -> None:
    logits = torch.tensor([[0.0, 0.0], [math.nan, math.nan], [math.log(3), 0.0]], dtype=F64)
    active = torch.tensor([True, False, True])
    logps, entropies = reference_logprobs(logits.__getitem__, torch.tensor([0, -100, 1]), active, 2, 1.0)
    torch.testing.assert_close(logps, vec(math.log(1 / 2), 0, math.log(1 / 4)))
    assert entropies[1] == 0
