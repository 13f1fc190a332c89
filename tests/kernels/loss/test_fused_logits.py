"""The policy loss from logits with its gradient taken in the forward pass, in place or not."""

from typing import Any

import pytest
import torch
from loss_cases import V, make_case, needs_native
from op_profile import caught_operator, cost_of

from outcome_rl_kernels import policy_loss

pytestmark = needs_native

EXTRA = 13  # columns of a padded vocabulary


def test_columns_beside_the_vocabulary_do_not_count_and_are_not_written() -> None:
    case = make_case(0, torch.float32, {}, absent={"answer_mask"})
    wide = torch.nn.functional.pad(case.logits(torch.float32).nan_to_num(), (0, EXTRA), value=99.0)
    leaf = wide.clone().requires_grad_()
    whole = leaf * 1
    policy_loss(whole[..., :V], **case.inputs, inplace=True).loss.backward()
    assert not leaf.grad[..., V:].any()
    assert torch.equal(whole, wide)  # its rows are not contiguous, so the gradient went elsewhere


def test_without_a_gradient_nothing_is_written() -> None:
    case = make_case(0, torch.float32, {})
    logits = case.logits(torch.float32)
    before = logits.clone()
    policy_loss(logits, **case.inputs, inplace=True)
    with torch.no_grad():
        policy_loss(logits.requires_grad_(), **case.inputs, inplace=True)
    torch.testing.assert_close(logits, before, atol=0, rtol=0, equal_nan=True)


def test_logits_that_another_gradient_needs_are_not_spoilt_silently() -> None:
    case = make_case(0, torch.float32, {})
    logits = case.logits(torch.float32).requires_grad_()
    capped = 30 * (logits / 30).tanh()
    policy_loss(capped, **case.inputs, inplace=True).loss.backward()  # the product keeps no copy of its result
    bounded = logits.tanh()  # tanh does
    loss = policy_loss(bounded, **case.inputs, inplace=True).loss
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize(("inplace", "copies"), [(True, 0), (False, 1)])
@pytest.mark.parametrize("token_loss", ["ppo", "gspo"])
def test_memory_is_that_of_the_gradient(inplace: bool, copies: int, token_loss: str) -> None:
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 8, 2**14, generator=g).requires_grad_()
    arguments = torch.randint(2**14, (2, 8), generator=g), torch.ones(2), torch.ones(2, 8, dtype=torch.bool)
    activations = logits.clone()
    options = {"token_loss": token_loss, "old_logps": torch.full((2, 8), -10.0)}
    activations_bytes = logits.numel() * 4
    cost = cost_of(lambda: policy_loss(activations, *arguments, inplace=inplace, **options).loss.backward())
    assert copies * activations_bytes <= cost.peak_bytes <= copies * activations_bytes + 64_000


# --- torch.library and torch.compile ---


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"absent": {"bonuses", "answer_mask", "ref_logps", "old_logps", "rollout_weights"}},
        {"wants_grad": False},
        {"transposed": True, "token_loss": "gspo"},
        {"dtype": torch.bfloat16, "beta": 0.1, "entropy_coef": 0.1},
    ],
)
def test_opcheck(options: dict[str, Any]) -> None:
    transposed, dtype = options.pop("transposed", False), options.pop("dtype", torch.float32)
    case = make_case(1, dtype, options, absent=options.pop("absent", set()))
    logits = case.logits(dtype).nan_to_num()
    if transposed:
        logits = logits.permute(2, 0, 1).clone().permute(1, 2, 0)
    logits.requires_grad_(options.pop("wants_grad", True))
    operator, arguments = caught_operator(lambda: policy_loss(logits, **case.inputs, **options))
    assert operator is torch.ops.outcome_rl.policy_loss.default
    torch.library.opcheck(operator, arguments)


# --- numbers that are none, and sizes ---


def test_more_logits_than_32_bits_count() -> None:
    """Room for 2.2e9 logits is promised by the system, and taken only where a row is written or read: the last."""
    tokens, vocabulary = 31_000, 70_000
    assert tokens * vocabulary > 2**31
    logits = torch.empty(1, tokens, vocabulary, dtype=torch.bfloat16)
    logits[0, -1] = torch.linspace(0, 5, vocabulary)
    mask = torch.zeros(1, tokens, dtype=torch.bool)
    mask[0, -1] = True
    labels = torch.full((1, tokens), vocabulary - 1)
    output = policy_loss(logits, labels, torch.ones(1), mask, impl="native")
    exact = logits[0, -1].double().log_softmax(0)
    assert output.logps[0, -1].item() == pytest.approx(exact[-1].item(), abs=1e-5)
    assert output.entropies[0, -1].item() == pytest.approx(-(exact.exp() * exact).sum().item(), abs=1e-5)
