"""Importance weights by hand, and figures of them that do not depend on how a batch is cut."""

import pytest
import torch

from outcome_rl.grpo.update.importance import Mismatch, importance_weights

LOGPS = torch.tensor([[-1.0, -2.0, -0.5], [-3.0, -0.1, -7.0]])
ENGINE = torch.tensor([[-1.5, -2.0, -0.4], [-2.0, -0.1, 9.0]])
MASK = torch.tensor([[True, True, True], [True, True, False]])
DIFFERENCES = torch.tensor([0.5, 0.0, -0.1, -1.0, 0.0])


def test_weights_are_truncated_ratios_without_gradient() -> None:
    logps = LOGPS.clone().requires_grad_()
    weights = importance_weights(logps, ENGINE, cap=1.25)
    expected = torch.tensor([[1.25, 1.0, 0.9048374], [0.3678794, 1.0, 1.125352e-07]])
    torch.testing.assert_close(weights, expected)
    assert not weights.requires_grad


@pytest.mark.parametrize("parts", [[slice(0, 2)], [slice(0, 1), slice(1, 2)]], ids=["whole", "cut"])
def test_figures_are_of_the_tokens_of_the_mask(parts: list[slice]) -> None:
    mismatch = Mismatch(cap=1.25)
    for rows in parts:
        mismatch.add(LOGPS[rows][MASK[rows]], ENGINE[rows][MASK[rows]])
    ratios = DIFFERENCES.exp()
    assert mismatch.summary() == pytest.approx(
        {
            "logp_diff_mean": DIFFERENCES.abs().mean().item(),
            "logp_diff_max": 1.0,
            "importance_mean": ratios.clamp(max=1.25).mean().item(),
            "importance_clipped": 1 / 5,
        }
    )


def test_without_a_cap_there_are_no_weights() -> None:
    mismatch = Mismatch(cap=None)
    assert mismatch.summary() == {}
    mismatch.add(LOGPS[MASK], ENGINE[MASK])
    assert mismatch.summary() == pytest.approx({"logp_diff_mean": 1.6 / 5, "logp_diff_max": 1.0})
