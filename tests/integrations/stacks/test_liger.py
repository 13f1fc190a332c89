"""The example against Liger's own class: signatures, losses, metrics and gradients."""

import inspect
from typing import Any

import liger_kernel.chunked_loss as theirs
import pytest
import torch
from liger import LigerFusedLinearGRPOLoss
from torch import Tensor

B, T, H, V = 5, 7, 16, 83
CLASSES = (LigerFusedLinearGRPOLoss, theirs.LigerFusedLinearGRPOLoss)
LEARNED = ("_input", "lin_weight", "bias")
SEQUENCES = {"importance_sampling_level": "sequence"}


def make_case(dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """Ratios beyond every bound, a group without advantages, a masked prefix, and an empty sequence."""
    generator = torch.Generator().manual_seed(11)
    mask = torch.rand(B, T, generator=generator) > 0.25
    mask[3] = False
    hidden = torch.randn(B, T, H, generator=generator).to(dtype)
    weight = (torch.randn(V, H, generator=generator) / 4).to(dtype)
    labels = torch.randint(V, (B, T), generator=generator)
    logps = (hidden.float() @ weight.float().T).log_softmax(-1).gather(-1, labels[..., None])[..., 0]
    shifts = torch.tensor([-1.5, -0.5, -0.1, 0.0, 0.1, 0.5, 1.5])
    return {
        "_input": hidden,
        "lin_weight": weight,
        "selected_token_ids": labels,
        "attention_mask": mask,
        "advantages": torch.tensor([1.3, -0.8, 0.0, 0.5, -2.0]),
        "bias": torch.randn(V, generator=generator).to(dtype) / 8,
        "old_per_token_logps": logps - shifts[torch.randint(7, (B, T), generator=generator)],
        "ref_per_token_logps": logps + shifts[torch.randint(7, (B, T), generator=generator)],
    }


def run(loss_class: Any, settings: dict[str, Any], case: dict[str, Any]) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    learned = {name: case[name].clone().requires_grad_() for name in LEARNED}
    loss, metrics = loss_class(compiled=False, **settings)(**case | learned)
    (2 * loss).backward()
    return [loss.detach(), *(leaf.grad for leaf in learned.values())], metrics


def test_signatures_are_ligers() -> None:
    for name in ("__init__", "forward"):
        ours, expected = (inspect.signature(getattr(one, name)).parameters.values() for one in CLASSES)
        assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in expected], name


REFERENCE = {
    "ref_per_token_logps": None,
    "ref_input": torch.randn(B, T, H, generator=torch.Generator().manual_seed(5)) / 4,  # log-ratios within the bound
    "ref_weight": torch.randn(V, H, generator=torch.Generator().manual_seed(6)),
    "ref_bias": torch.linspace(-0.2, 0.2, V),
}
NEAR = make_case()["old_per_token_logps"] * 0.9  # ratios of sequences near 1 and far from it
WEIGHTS = torch.linspace(0.8, 1.2, B * T).reshape(B, T)
WEIGHED = WEIGHTS.where(make_case()["attention_mask"], 1.0)  # for vespo Liger multiplies those of masked tokens too


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        *(
            ({"loss_type": name, "beta": beta, "max_completion_length": 9, "temperature": 0.7} | level, {})
            for name in ("grpo", "bnpo", "dr_grpo", "dapo")
            for beta, level in ((0.0, SEQUENCES), (0.1, {"epsilon_high": 0.28}))
        ),
        ({"loss_type": "luspo", "beta": 0.0} | SEQUENCES, {}),
        ({"loss_type": "sapo", "sapo_temperature_pos": 2.0, "sapo_temperature_neg": 3.0}, {}),
        ({"loss_type": "cispo", "epsilon_high": 1.5}, {}),
        ({"loss_type": "vespo"}, {"old_per_token_logps": NEAR}),
        ({"loss_type": "vespo", "vespo_k_pos": 1.0, "vespo_lambda_neg": 0.5}, {"vllm_is_ratio": WEIGHED}),
        ({"delta": 1.8}, {}),
        ({"use_bias_correction_kl": True}, {}),
        ({"use_ref_model": False}, {}),
        ({"temperature": 0.8}, REFERENCE),
        ({}, {"old_per_token_logps": None, "attention_mask": make_case()["attention_mask"].float()}),
        ({}, {"num_items_in_batch": torch.tensor(60), "vllm_is_ratio": WEIGHTS}),
        (SEQUENCES, {"vllm_is_ratio": WEIGHTS[:, :1]}),
        ({"beta": 0.0}, {"advantages": torch.zeros(B).index_fill(0, torch.tensor([1]), 1.0)}),
        ({}, {name: make_case()[name].double() for name in ("lin_weight", "bias")}),
        ({}, {"selected_token_ids": make_case()["selected_token_ids"].int()}),
    ],
)
def test_losses_gradients_and_metrics_are_ligers(settings: dict[str, Any], changes: dict[str, Any]) -> None:
    """The clip metric is another one with delta, and for losses that do not clip."""
    (ours, metrics), (expected, their_metrics) = (run(one, settings, make_case() | changes) for one in CLASSES)
    assert expected[2].abs().sum() > 0
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)
    if "delta" not in settings and settings.get("loss_type") not in ("cispo", "vespo"):
        torch.testing.assert_close(metrics, tuple(value.float() for value in their_metrics), rtol=1e-4, atol=1e-6)


def test_the_gradient_of_a_bfloat16_weight_is_rounded_once() -> None:
    """Liger adds a rounded part for each sequence."""
    case = make_case(torch.bfloat16)
    exact = {name: x.double() if x.is_floating_point() else x for name, x in case.items()}
    truth = run(LigerFusedLinearGRPOLoss, {"loss_type": "grpo"}, exact)[0][2]
    ours = run(LigerFusedLinearGRPOLoss, {"loss_type": "grpo"}, case)[0][2]
    assert (ours.double() - truth).norm() < 0.02 * truth.norm()


def test_advantages_may_be_one_a_token() -> None:
    case = make_case()
    by_token = case["advantages"][:, None].expand(B, T).contiguous()
    per_sequence, per_token = (
        run(LigerFusedLinearGRPOLoss, {}, case | {"advantages": a}) for a in (case["advantages"], by_token)
    )
    torch.testing.assert_close(per_sequence, per_token)


@pytest.mark.parametrize(
    ("settings", "changes", "named"),
    [
        ({"loss_type": "cispo"}, {}, "epsilon_high below 1"),
        ({"loss_type": "sapo"} | SEQUENCES, {}, "loss_type='sapo'"),
        ({"loss_type": "luspo"}, {}, "loss_type='luspo'"),
        ({"loss_type": "dr_grpo"}, {}, "max_completion_length"),
        ({"importance_sampling_level": "turn"}, {}, "importance_sampling_level='turn'"),
        ({"use_bias_correction_kl": True} | SEQUENCES, {}, "use_bias_correction_kl"),
        ({"delta": 1.1}, {}, "delta below"),
        ({}, {"ref_per_token_logps": None}, "needs ref_per_token_logps"),
        (SEQUENCES, {"vllm_is_ratio": WEIGHTS}, "vllm_is_ratio must be per sequence"),
        ({"loss_type": "vespo"}, {"vllm_is_ratio": WEIGHTS[:, 0]}, "must be one per token"),
    ],
)
def test_other_options_are_refused_by_name(settings: dict[str, Any], changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        LigerFusedLinearGRPOLoss(**settings)(**make_case() | changes)
