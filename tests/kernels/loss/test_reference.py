"""The specification of the token policy loss against numbers worked out by hand, in float64."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import ABSENT, SETTINGS, make_case
from torch import Tensor

from outcome_rl_kernels.loss.reference import (
    LossSettings,
    PolicyLossOutput,
    TokenBatch,
    active_tokens,
    contributing_tokens,
    importance_ratios,
    kl_divergence,
    logps_and_entropies,
    policy_gradient_losses,
    policy_loss_from_logits,
    token_weights,
)

F64 = torch.float64


def vec(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64)


def batch_of(lengths: list[int], horizon: int = 4, **tensors: Tensor) -> TokenBatch:
    n = sum(lengths)
    fields: dict[str, Tensor] = {
        "labels_N": torch.zeros(n, dtype=torch.int64),
        "advantages_N": torch.ones(n, dtype=F64),
        "mask_N": torch.ones(n, dtype=torch.bool),
    }
    return TokenBatch(
        **(fields | tensors),
        sequence_ids_N=torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)),
        num_sequences=len(lengths),
        horizon=horizon,
    )


def loss_of(logits_NV: Tensor, batch: TokenBatch, settings: LossSettings) -> PolicyLossOutput:
    weights_N = token_weights(batch, batch.mask_N, settings, None)
    return policy_loss_from_logits(logits_NV, batch, weights_N, settings)


class TestLogps:
    def test_uniform_and_peaked_rows(self) -> None:
        logits = torch.tensor([[0.0, 0, 0, 0], [math.log(3), 0, 0, -math.inf]], dtype=F64)
        logps, entropies = logps_and_entropies(logits, torch.tensor([2, 0]), 1.0)
        torch.testing.assert_close(logps, vec(math.log(1 / 4), math.log(3 / 5)))
        peaked = -(0.6 * math.log(0.6) + 2 * 0.2 * math.log(0.2))
        torch.testing.assert_close(entropies, vec(math.log(4), peaked))

    def test_temperature_divides_the_logits(self) -> None:
        logps, _ = logps_and_entropies(vec(2 * math.log(3), 0)[None], torch.tensor([0]), 2.0)
        torch.testing.assert_close(logps, vec(math.log(3 / 4)))

    def test_half_precision_is_upcast(self) -> None:
        logits = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0)).bfloat16()
        labels = torch.tensor([0, 1, 2])
        got, _ = logps_and_entropies(logits, labels, 1.0)
        want, _ = logps_and_entropies(logits.double(), labels, 1.0)
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=1e-6)


class TestKL:
    # policy twice and half as likely as the reference: log-ratios ref - lp of -ln 2 and ln 2
    logps, ref = vec(math.log(0.5), math.log(0.25)), vec(math.log(0.25), math.log(0.5))

    def kl(self, **settings: object) -> list[float]:
        return kl_divergence(self.logps, self.ref, LossSettings(**settings)).tolist()  # type: ignore[arg-type]

    def test_k1(self) -> None:
        assert self.kl(kl_penalty="k1") == pytest.approx([math.log(2), -math.log(2)])

    def test_k2(self) -> None:
        assert self.kl(kl_penalty="k2") == pytest.approx([math.log(2) ** 2 / 2] * 2)

    def test_k3(self) -> None:
        assert self.kl() == pytest.approx([0.5 + math.log(2) - 1, 2 - math.log(2) - 1])

    def test_k3_gradient_is_one_minus_the_ratio(self) -> None:
        logps = self.logps.clone().requires_grad_()
        kl_divergence(logps, self.ref, LossSettings()).sum().backward()
        torch.testing.assert_close(logps.grad, vec(1 - 0.5, 1 - 2.0))

    def test_clamps(self) -> None:
        far = kl_divergence(vec(-50), vec(0), LossSettings(log_ratio_clamp=20.0, kl_clamp=10.0))
        assert far.item() == 10
        assert kl_divergence(vec(-50), vec(0), LossSettings(log_ratio_clamp=20.0)).item() == pytest.approx(
            math.exp(20) - 21
        )


class TestRatios:
    def test_on_policy_ratio_is_one_and_carries_the_gradient(self) -> None:
        logps = vec(-1, -2).requires_grad_()
        ratios = importance_ratios(logps, batch_of([2]), LossSettings())
        assert ratios.tolist() == [1, 1]
        ratios.sum().backward()
        assert logps.grad is not None
        assert logps.grad.tolist() == [1, 1]

    def test_token_ratio(self) -> None:
        batch = batch_of([2], old_logps_N=vec(math.log(0.5), math.log(0.5)))
        ratios = importance_ratios(vec(math.log(0.25), math.log(0.75)), batch, LossSettings())
        assert ratios.tolist() == pytest.approx([0.5, 1.5])

    def test_sequence_ratio_is_the_geometric_mean(self) -> None:
        batch = batch_of([2, 1], old_logps_N=vec(0, 0, 0))
        logps = vec(math.log(0.5), math.log(0.125), math.log(0.9)).requires_grad_()
        ratios = importance_ratios(logps, batch, LossSettings(importance_level="sequence"))
        assert ratios.tolist() == pytest.approx([0.25, 0.25, 0.9])
        ratios[0].backward()
        assert logps.grad is not None
        assert logps.grad.tolist() == pytest.approx([0.25, 0, 0])  # each token keeps its own gradient


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "clipped"),
    [
        (1.0, 2.0, -2.0, False),
        (1.5, 1.0, -1.3, True),  # 1 + epsilon_high
        (0.5, 1.0, -0.5, False),  # below the range the pessimistic side is the ratio itself
        (0.5, -1.0, 0.8, True),  # 1 - epsilon_low
        (1.5, -1.0, 1.5, False),
        (9.0, -1.0, 3.0, True),  # dual clip at delta
        (9.0, 1.0, -1.3, True),
        (9.0, 0.0, 0.0, False),
    ],
)
def test_clipped_surrogate(ratio: float, advantage: float, expected: float, clipped: bool) -> None:
    settings = LossSettings(epsilon_low=0.2, epsilon_high=0.3, delta=3.0)
    loss, is_clipped = policy_gradient_losses(vec(ratio), vec(advantage), settings)
    assert loss.item() == pytest.approx(expected)
    assert is_clipped.item() is clipped


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-sum", 1 + 2 + 3 + 10),
        ("token-mean", 16 / 4),
        ("seq-mean-token-sum", (6 + 10) / 2),  # the empty sequence does not count
        ("seq-mean-token-mean", (2 + 10) / 2),
        ("seq-mean-token-sum-norm", (6 + 10) / 2 / 5),
    ],
)
def test_aggregation(mode: str, expected: float) -> None:
    batch = batch_of([3, 0, 1], horizon=5)
    settings = LossSettings(loss_agg=mode)  # type: ignore[arg-type]
    losses = vec(1, 2, 3, 10)
    assert (losses * token_weights(batch, batch.mask_N, settings, None)).sum().item() == pytest.approx(expected)
    numerator = 2 + 10 if mode == "seq-mean-token-mean" else 16
    assert (losses * token_weights(batch, batch.mask_N, settings, 8)).sum().item() == pytest.approx(numerator / 8)


class TestPolicyLoss:
    """Two tokens of one sequence over a vocabulary of two; the second is the answer. Everything is checked by hand."""

    p = (0.8, 0.4)
    logits = torch.tensor([[math.log(0.8), math.log(0.2)], [math.log(0.4), math.log(0.6)]], dtype=F64)
    old = vec(math.log(0.8), math.log(0.5))
    ref = vec(math.log(0.4), math.log(0.8))
    answer = torch.tensor([False, True])
    k3 = (0.5 + math.log(2) - 1, 2 - math.log(2) - 1)
    ratios = (1.0, 0.8)
    beta = 0.1

    def loss(self, mode: str, **overrides: object) -> float:
        batch = batch_of(
            [2],
            advantages_N=vec(2, 2),
            bonuses_N=vec(0.5, 0.5),
            answer_mask_N=self.answer,
            ref_logps_N=self.ref,
            old_logps_N=self.old,
        )
        settings = LossSettings(answer_mask_mode=mode, beta=self.beta, loss_agg="token-sum", **overrides)  # type: ignore[arg-type]
        return loss_of(self.logits, batch, settings).loss.item()

    def test_none_keeps_both_tokens(self) -> None:
        assert self.loss("none") == pytest.approx(-2.5 * 1.0 - 2.5 * 0.8 + self.beta * sum(self.k3))

    def test_policy_drops_the_answer_from_the_policy_term_only(self) -> None:
        assert self.loss("policy") == pytest.approx(-2.5 * 1.0 + self.beta * sum(self.k3))

    def test_bonus_drops_only_the_bonus(self) -> None:
        assert self.loss("bonus") == pytest.approx(-2.5 * 1.0 - 2.0 * 0.8 + self.beta * sum(self.k3))

    def test_entropy_is_subtracted(self) -> None:
        entropy = sum(-p * math.log(p) - (1 - p) * math.log(1 - p) for p in self.p)
        assert self.loss("none", entropy_coef=0.3) == pytest.approx(self.loss("none") - 0.3 * entropy)

    def test_rollout_weights_multiply_the_policy_term_only(self) -> None:
        batch = batch_of([2], ref_logps_N=self.ref, rollout_weights_N=vec(0.5, 2.0))
        settings = LossSettings(beta=self.beta, loss_agg="token-sum")
        got = loss_of(self.logits, batch, settings).loss.item()
        assert got == pytest.approx(-0.5 - 2.0 + self.beta * sum(self.k3))

    def test_metrics(self) -> None:
        batch = batch_of(
            [2], old_logps_N=vec(math.log(0.5), math.log(0.4)), ref_logps_N=self.ref, answer_mask_N=self.answer
        )
        metrics = loss_of(self.logits, batch, LossSettings()).metrics
        assert metrics["computed_tokens"].item() == 2
        assert metrics["ratio_mean"].item() == pytest.approx((1.6 + 1.0) / 2)
        assert metrics["clip_fraction"].item() == 1.0  # one policy token, clipped; the answer token is not one
        assert metrics["kl"].item() == pytest.approx(sum(self.k3) / 2)
        assert all(value.dim() == 0 and not value.requires_grad for value in metrics.values())

    def test_a_reference_at_zero_beta_cannot_poison_the_loss(self) -> None:
        batch = batch_of([2], ref_logps_N=vec(math.inf, 0))
        output = loss_of(self.logits, batch, LossSettings(loss_agg="token-sum"))
        assert output.loss.item() == -2


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("loss_agg", "mean", "loss_agg must be one of 'token-mean'"),
        ("answer_mask_mode", "both", "answer_mask_mode must be one of"),
        ("temperature", 0.0, "temperature must be > 0"),
        ("temperature", math.nan, "temperature must be > 0"),
        ("epsilon_low", 1.5, r"epsilon_low must lie in \[0, 1\]"),
        ("epsilon_high", -0.1, "epsilon_high must be >= 0"),
        ("delta", 1.0, "must be > 1"),
        ("kl_clamp", -1.0, "kl_clamp must be > 0"),
    ],
)
def test_settings_are_checked(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LossSettings(**{field: value})  # type: ignore[arg-type]


def test_settings_take_python_numbers() -> None:
    with pytest.raises(TypeError, match="beta must be a Python number; got Tensor"):
        LossSettings(beta=torch.tensor(0.1))  # type: ignore[arg-type]


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 1000), chosen=SETTINGS, absent=ABSENT)
def test_tokens_that_cannot_contribute_have_no_loss_and_no_gradient(
    seed: int, chosen: dict[str, Any], absent: set[str]
) -> None:
    case = make_case(seed, F64, chosen, absent=absent)
    batch = case.batch()
    chosen = {name: value for name, value in chosen.items() if name != "normalizer"}
    options = LossSettings(**chosen)
    active_N = active_tokens(batch, options.answer_mask_mode)
    contributing_N = contributing_tokens(batch, active_N, options)
    assert not (contributing_N & ~active_N).any()
    rows = active_N.nonzero()[:, 0]
    logits = case.logits(F64).flatten(0, 1)[rows].requires_grad_()
    batch, contributes = batch.select(rows), contributing_N[rows]
    loss = loss_of(logits, batch, options).loss
    (gradient,) = torch.autograd.grad(loss, logits)
    assert not gradient[~contributes].any()
    kept = contributes.nonzero()[:, 0]
    weights = token_weights(batch, batch.mask_N, options, None)
    without = policy_loss_from_logits(logits[kept], batch.select(kept), weights[kept], options).loss
    torch.testing.assert_close(without, loss)


@pytest.mark.parametrize(
    ("change", "contributing"),
    [
        ({}, [0, 1, 2]),  # the second sequence has advantage 0
        ({"bonuses_N": vec(0, 0, 0, 0, 0.1)}, [0, 1, 2, 4]),
        ({"bonuses_N": vec(-1, 0, 0, 0, 0)}, [1, 2]),  # cancels the advantage
        ({"answer_mask_N": torch.tensor([False, False, True, False, True])}, [0, 1]),
        ({"rollout_weights_N": vec(1, 0, 1, 1, 1)}, [0, 2]),
        ({"advantages_N": vec(1, 1, 1, math.nan, 0)}, [0, 1, 2, 3]),  # NaN must reach the loss
    ],
)
def test_which_tokens_contribute(change: dict[str, Tensor], contributing: list[int]) -> None:
    batch = batch_of([3, 2], **({"advantages_N": vec(1, 1, 1, 0, 0)} | change))
    everything = torch.ones(5, dtype=torch.bool)
    assert contributing_tokens(batch, everything, LossSettings()).nonzero()[:, 0].tolist() == contributing
    with_ref = batch._replace(ref_logps_N=torch.zeros(5, dtype=F64))
    assert contributing_tokens(with_ref, everything, LossSettings(beta=0.1)).all()
    assert contributing_tokens(batch, everything, LossSettings(entropy_coef=0.1)).all()
    whole = contributing_tokens(
        batch._replace(old_logps_N=torch.zeros(5, dtype=F64)), everything, LossSettings(importance_level="sequence")
    )
    assert whole.tolist() == [True] * 3 + [any(i > 2 for i in contributing)] * 2  # each has its part in the ratio
