"""Drop-ins against the peers' own implementations, on the CPU: signatures, values, gradients."""

import inspect
from pathlib import Path
from typing import Any

import liger_kernel.chunked_loss as liger
import pytest
import torch
from ranks import on_shards
from torch import Tensor

from outcome_rl.integrations.liger import LigerFusedLinearGRPOLoss
from outcome_rl.integrations.verl.kernels import linear_cross_entropy

B, T, H, V = 5, 7, 16, 83


def parameters(function: Any) -> list[tuple[str, Any]]:
    return [(p.name, p.default) for p in inspect.signature(function).parameters.values()]


# --- Liger


def grpo_case(dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """Ratios beyond every bound, a dead group, a masked prefix, and an empty sequence."""
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


def run(
    loss_class: Any, settings: dict[str, Any], case: dict[str, Any]
) -> tuple[Tensor, list[Tensor], tuple[Tensor, ...]]:
    learned = [case[name].clone().requires_grad_() for name in ("_input", "lin_weight", "bias")]
    called = case | dict(zip(("_input", "lin_weight", "bias"), learned, strict=True))
    loss, metrics = loss_class(compiled=False, **settings)(**called)
    (2 * loss).backward()
    return loss.detach(), [x.grad for x in learned], metrics


def assert_same(settings: dict[str, Any], case: dict[str, Any], *, metrics: bool = True) -> None:
    ours, theirs = (run(c, settings, case) for c in (LigerFusedLinearGRPOLoss, liger.LigerFusedLinearGRPOLoss))
    assert theirs[1][1].abs().sum() > 0
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-5, atol=1e-6)
    for gradient, liger_gradient in zip(ours[1], theirs[1], strict=True):
        torch.testing.assert_close(gradient, liger_gradient, rtol=1e-4, atol=1e-6)
    if metrics:
        assert len(ours[2]) == len(theirs[2])
        for value, liger_value in zip(ours[2], theirs[2], strict=True):
            torch.testing.assert_close(value, liger_value.to(value.dtype), rtol=1e-4, atol=1e-6)


def test_signatures_are_ligers() -> None:
    for name in ("__init__", "forward"):
        ours, theirs = (getattr(c, name) for c in (LigerFusedLinearGRPOLoss, liger.LigerFusedLinearGRPOLoss))
        assert parameters(ours) == parameters(theirs), name


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo"])
def test_grpo_loss_is_ligers(loss_type: str, beta: float, level: str) -> None:
    settings = {"loss_type": loss_type, "beta": beta, "importance_sampling_level": level, "max_completion_length": 9}
    assert_same(settings | {"epsilon_high": 0.28, "temperature": 0.7}, grpo_case())


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({"loss_type": "luspo", "beta": 0.0, "importance_sampling_level": "sequence"}, {}),
        ({"loss_type": "sapo"}, {}),
        ({"loss_type": "sapo", "sapo_temperature_pos": 2.0, "sapo_temperature_neg": 3.0}, {}),
        ({"use_bias_correction_kl": True}, {}),
        ({"use_ref_model": False}, {}),
        ({}, {"old_per_token_logps": None}),
        ({"chunk_size": 2}, {"attention_mask": grpo_case()["attention_mask"].float()}),
        ({}, {"num_items_in_batch": torch.tensor(60)}),
        ({}, {"vllm_is_ratio": torch.linspace(0.2, 2, B * T).reshape(B, T)}),
        ({"importance_sampling_level": "sequence"}, {"vllm_is_ratio": torch.linspace(0.2, 2, B)[:, None]}),
        ({"beta": 0.0}, {"advantages": torch.zeros(B).index_fill(0, torch.tensor([1]), 1.0)}),
        ({"loss_type": "cispo", "epsilon_high": 1.5}, {}),
        ({"delta": 1.8}, {}),
    ],
)
def test_options_are_ligers(settings: dict[str, Any], changes: dict[str, Any]) -> None:
    """Liger's clip metric leaves out what delta bounds, and for CISPO tokens with a negative advantage."""
    is_other = "delta" in settings or settings.get("loss_type") == "cispo"
    assert_same(settings, grpo_case() | changes, metrics=not is_other)


@pytest.mark.parametrize("gammas", [{}, {"vespo_k_pos": 1.0, "vespo_lambda_neg": 0.5}])
@pytest.mark.parametrize("weighed", [False, True])
def test_vespo_is_ligers(gammas: dict[str, float], weighed: bool) -> None:
    """The clip metric is not compared: Liger's is another figure."""
    case = grpo_case()
    case["old_per_token_logps"] = case["old_per_token_logps"] * 0.9  # ratios of sequences near 1 and far from it
    if weighed:
        ratios = torch.linspace(0.8, 1.2, B * T).reshape(B, T)
        case["vllm_is_ratio"] = ratios.where(case["attention_mask"], 1.0)  # Liger multiplies masked ones, too
    assert_same({"loss_type": "vespo", **gammas}, case, metrics=False)


def test_the_reference_may_come_as_hidden_states() -> None:
    case = grpo_case()
    generator = torch.Generator().manual_seed(5)
    reference = {
        "ref_input": torch.randn(B, T, H, generator=generator) / 4,  # log-ratios within the bound, which Liger lacks
        "ref_weight": torch.randn(V, H, generator=generator),
    }
    assert_same({"temperature": 0.8}, case | reference | {"ref_per_token_logps": None, "ref_bias": case["bias"]})


def test_the_gradient_of_a_bfloat16_weight_is_rounded_once() -> None:
    """Liger adds a rounded part for each sequence."""
    case = grpo_case(torch.bfloat16)
    exact = {name: x.double() if x.is_floating_point() else x for name, x in case.items()}
    settings = {"beta": 0.1, "loss_type": "grpo"}
    truth = run(LigerFusedLinearGRPOLoss, settings, exact)[1][1]
    ours, theirs = (
        (run(c, settings, case)[1][1].double() - truth).norm()
        for c in (LigerFusedLinearGRPOLoss, liger.LigerFusedLinearGRPOLoss)
    )
    assert ours < 0.02 * truth.norm()
    assert theirs > 0


def test_advantages_may_be_one_a_token() -> None:
    case = grpo_case()
    by_token = case["advantages"][:, None].expand(B, T).contiguous()
    per_sequence, per_token = (
        run(LigerFusedLinearGRPOLoss, {}, case | {"advantages": a}) for a in (case["advantages"], by_token)
    )
    torch.testing.assert_close(per_sequence, per_token)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss_type": "cispo"}, "loss_type='cispo' with epsilon_high"),
        ({"loss_type": "sapo", "importance_sampling_level": "sequence"}, "loss_type='sapo' with importance_sampling"),
        ({"loss_type": "luspo"}, "loss_type='luspo' needs importance_sampling_level"),
        ({"loss_type": "dr_grpo"}, "max_completion_length"),
        ({"importance_sampling_level": "turn"}, "got 'turn'"),
        ({"use_bias_correction_kl": True, "importance_sampling_level": "sequence"}, "use_bias_correction_kl with"),
        ({"delta": 1.1}, "delta below"),
    ],
)
def test_options_that_cannot_be_expressed_raise(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LigerFusedLinearGRPOLoss(**settings)


@pytest.mark.parametrize(
    ("settings", "changes", "message"),
    [
        ({}, {"ref_per_token_logps": None}, "needs ref_per_token_logps, or ref_input and ref_weight"),
        ({"importance_sampling_level": "sequence"}, {"vllm_is_ratio": torch.ones(B, T)}, "must be per sequence"),
        ({"loss_type": "vespo"}, {"vllm_is_ratio": torch.ones(B)}, "must be one per token"),
    ],
)
def test_inputs_that_are_missing_or_do_not_fit_raise(settings: Any, changes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LigerFusedLinearGRPOLoss(**settings)(**grpo_case() | changes)


# --- verl


def test_signature_is_verls() -> None:
    from verl.utils.kernel.linear_cross_entropy import LinearCrossEntropy

    assert parameters(linear_cross_entropy) == parameters(LinearCrossEntropy.forward)[1:]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_linear_cross_entropy_is_verls_eager_twin(temperature: float) -> None:
    """verl's Triton kernel needs a GPU; `FusedLinearForPPOFunction` is what verl runs in its place."""
    from verl.utils.experimental.torch_functional import FusedLinearForPPOFunction

    case = grpo_case()
    generator = torch.Generator().manual_seed(2)
    upstream = torch.randn(2, B * T, generator=generator)
    results = []
    for function in (linear_cross_entropy, FusedLinearForPPOFunction.apply):
        hidden, weight = (case[name].clone().requires_grad_() for name in ("_input", "lin_weight"))
        logps, entropies = function(hidden, weight, case["selected_token_ids"], temperature)
        (logps.flatten() * upstream[0] + entropies.flatten() * upstream[1]).sum().backward()
        results.append((logps.detach().flatten(), entropies.detach().flatten(), hidden.grad, weight.grad))
    for ours, verls in zip(*results, strict=True):
        torch.testing.assert_close(ours, verls, rtol=1e-4, atol=1e-5)


def test_linear_cross_entropy_keeps_float32_logits_of_bfloat16_operands() -> None:
    """verl's kernel does, and its own test allows this much."""
    g = torch.Generator().manual_seed(0)
    hidden, weight = ((torch.rand(size, 512, generator=g) - 0.5).bfloat16() for size in (64, 1024))
    labels = torch.randint(1024, (64,), generator=g)
    found = linear_cross_entropy(hidden, weight, labels, 1.5)
    log_probs = (hidden.double() @ weight.double().T / 1.5).log_softmax(dim=-1)
    exact = log_probs.gather(1, labels[:, None])[:, 0], -(log_probs.exp() * log_probs).sum(dim=-1)
    for ours, truth in zip(found, exact, strict=True):
        torch.testing.assert_close(ours.double(), truth, rtol=2e-4, atol=1e-3)


def test_linear_cross_entropy_takes_packed_tokens_and_reduces() -> None:
    case = grpo_case()
    hidden, labels = case["_input"].flatten(0, 1), case["selected_token_ids"].flatten()
    logps, entropies = linear_cross_entropy(hidden, case["lin_weight"], labels, 1.0, "none")
    assert logps.shape == entropies.shape == (B * T,)
    for reduction in ("sum", "mean"):
        reduced, _ = linear_cross_entropy(hidden, case["lin_weight"], labels, 1.0, reduction)
        torch.testing.assert_close(reduced, getattr(logps, reduction)())
    with pytest.raises(ValueError, match="reduction must be 'none', 'sum' or 'mean'; got 'max'"):
        linear_cross_entropy(hidden, case["lin_weight"], labels, 1.0, "max")


def equal_shards(group: Any, mine: slice) -> None:
    """By the contract of verl's kernel: the ranks' gradients of the hidden states sum up to that of the whole head."""
    case = grpo_case()
    upstream = torch.randn(2, B * T, generator=torch.Generator().manual_seed(2))

    def results(part: slice, *options: Any) -> list[Tensor]:
        hidden, weight = (case[name].clone().requires_grad_() for name in ("_input", "lin_weight"))
        values = linear_cross_entropy(hidden, weight[part], case["selected_token_ids"], 0.7, "none", *options)
        torch.autograd.backward(values, upstream.unbind())
        return [*(value.detach() for value in values), hidden.grad, weight.grad[part]]

    whole, cut = results(slice(None)), results(mine, group)
    torch.distributed.all_reduce(cut[2], group=group)
    whole[3] = whole[3][mine]
    torch.testing.assert_close(cut, whole, rtol=1e-5, atol=1e-6)


def test_shards_of_the_vocabulary_equal_the_whole(tmp_path: Path) -> None:
    on_shards(equal_shards, tmp_path, (V - 20, 20))
