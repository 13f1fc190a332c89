"""Mismatch of policy and engine by hand, and figures of it that do not depend on how a batch is split."""

import math
from typing import Any

import pytest
import torch

from outcome_rl.grpo.update.totals import UpdateTotals

LOGPS = torch.tensor([-1.0, -2.0, -0.5, -3.0, -0.1])
ENGINE = torch.tensor([-1.5, -2.0, -0.4, -2.0, -0.1])
DIFFERENCES = torch.tensor([0.5, 0.0, -0.1, -1.0, 0.0])
KL = DIFFERENCES.double().exp() - 1 - DIFFERENCES.double()  # of the engine from the policy, by samples of the engine


def totals_of(cap: float | None, parts: list[slice]) -> UpdateTotals:
    totals = UpdateTotals(cap, torch.device("cpu"))
    totals.add_update(torch.tensor(2.0), torch.tensor(3.0))
    for tokens in parts:
        totals._add_mismatch(LOGPS[tokens], ENGINE[tokens])
    return totals


def mismatch(totals: UpdateTotals) -> dict[str, Any]:
    return {name: value for name, value in totals.metrics().items() if name.startswith("rollout/")}


@pytest.mark.parametrize("parts", [[slice(0, 5)], [slice(0, 3), slice(3, 5)]], ids=["whole", "split"])
def test_mismatch_is_over_tokens(parts: list[slice]) -> None:
    ratios = DIFFERENCES.exp()
    assert mismatch(totals_of(1.25, parts)) == pytest.approx(
        {
            "rollout/logp_diff_mean": DIFFERENCES.abs().mean().item(),
            "rollout/logp_diff_max": 1.0,
            "rollout/mismatch_kl": KL.mean().item(),
            "rollout/importance_mean": ratios.clamp(max=1.25).mean().item(),
            "rollout/importance_clipped": 1 / 5,
        }
    )


def test_without_a_cap_there_are_no_weights() -> None:
    assert mismatch(totals_of(None, [])) == {}
    expected = {"rollout/logp_diff_mean": 1.6 / 5, "rollout/logp_diff_max": 1.0}
    expected |= {"rollout/mismatch_kl": KL.mean().item()}
    assert mismatch(totals_of(None, [slice(0, 5)])) == pytest.approx(expected)


def test_tokens_without_a_log_probability_of_the_engine_are_counted() -> None:
    totals = UpdateTotals(2.0, torch.device("cpu"))
    totals.add_update(torch.tensor(2.0), torch.tensor(3.0))
    totals._add_mismatch(LOGPS, torch.tensor([torch.nan, -2.0, -torch.inf, -3.0, -0.1]))
    assert mismatch(totals) == pytest.approx(
        {
            "rollout/logp_diff_mean": 20 / 5,
            "rollout/logp_diff_max": 20.0,
            "rollout/mismatch_kl": (math.expm1(20) - 20) / 5,
            "rollout/importance_mean": (4 + 2) / 5,
            "rollout/importance_clipped": 1 / 5,
            "rollout/logp_missing": 1 / 5,
        }
    )


def test_figures_are_means_over_updates_and_tokens() -> None:
    totals = totals_of(None, [])
    totals.add_update(torch.tensor(-1.0), torch.tensor(1.0))
    totals.tokens += torch.tensor([8, 2, 9, 2, 4, 1])
    totals.entropy += torch.tensor([[7.0, 4], [2, 4], [6, 3]])
    totals.off_policy = True
    assert totals.metrics() == {
        "actor/loss": 0.5,
        "actor/kl": 0.25,
        "actor/grad_norm": 2.0,
        "actor/ratio_mean": 1.125,
        "actor/clip_fraction": 0.25,
        "actor/clamp_fraction": 0.25,
        "entropy/all": 1.125,
        "entropy/correct": 0.5,
        "entropy/incorrect": 1.75,
        "entropy/answer_share": 6 / 9,
    }


def test_a_single_update_has_no_ratio() -> None:
    assert totals_of(None, []).metrics() == {"actor/loss": 2.0, "actor/kl": 0.0, "actor/grad_norm": 3.0}
