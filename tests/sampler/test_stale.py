"""The warning of a stale sampler: its limit against the rounding of real log-probabilities, and how often it comes."""

import logging
import math
import warnings

import pytest
import torch

from outcome_rl.sampler.stale import SamplerCheck, rounding_limit, warn_of_identical


@pytest.mark.parametrize(
    ("dtypes", "limit"),
    [
        ([torch.bfloat16, torch.float32], 1 / 16),
        ([torch.float32, torch.bfloat16], 1 / 16),
        ([torch.float16, torch.float32], 1 / 128),
        ([torch.float32], 1 / 128),
    ],
)
def test_the_coarser_dtype_sets_the_limit(dtypes: list[torch.dtype], limit: float) -> None:
    assert rounding_limit(*dtypes) == limit


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounded_layers_stay_below_the_limit_and_other_weights_do_not(dtype: torch.dtype) -> None:
    """32 residual layers, then a head: rounded after each layer, and with weights changed by a tenth."""
    random = torch.Generator().manual_seed(0)
    layers = [torch.randn(64, 64, generator=random) / 8 for _ in range(32)]
    head, inputs = torch.randn(64, 256, generator=random) / 4, torch.randn(512, 64, generator=random)

    def logps(weights: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
        hidden = inputs.to(dtype)
        for weight in weights:
            normed = torch.nn.functional.rms_norm(hidden, (64,))
            hidden = hidden + torch.tanh(normed @ weight.to(dtype)) / 4
        logits = torch.nn.functional.rms_norm(hidden, (64,)) @ head.to(dtype)
        return logits.float().log_softmax(dim=1)

    exact = logps(layers, torch.float32)
    token = torch.multinomial(exact.exp(), 1, generator=random)

    def difference(other: torch.Tensor) -> float:
        return float((exact - other).gather(1, token).abs().mean())

    stale = [weight + torch.randn(64, 64, generator=random) / 80 for weight in layers]
    assert difference(logps(layers, dtype)) < rounding_limit(dtype) < difference(logps(stale, dtype))


def test_it_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    check = SamplerCheck("Look at the servers.", torch.bfloat16)
    with caplog.at_level(logging.WARNING):
        for value in (None, math.nan, 0.06):
            check.check("the_metric", value)
        assert not caplog.messages
        check.check("the_metric", 0.07)
        check.check("the_metric", 5.0)
    (message,) = caplog.messages
    assert message.startswith("the_metric is 0.07,")
    assert message.endswith("Look at the servers.")


def test_a_group_of_identical_samples_is_named() -> None:
    with pytest.warns(UserWarning, match="most groups of a batch consist of identical"):
        warn_of_identical(["a", "b", "a", "a", "b"], ["x", "x", "x", "x", "y"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_identical(["a", "b", "a", "a", "b"], ["x", "x", "x", "y", "x"])  # two of "b" may well be equal
