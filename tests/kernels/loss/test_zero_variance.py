"""RL-ZVP against its formula, written out response by response."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import H, V, batch_of
from torch import Tensor

from outcome_rl_kernels import group_advantages, linear_policy_loss
from outcome_rl_kernels.loss.aggregate import token_loss
from outcome_rl_kernels.loss.zero_variance import rl_zvp, zero_variance

F64 = torch.float64


def formula(entropies: Tensor, advantage: float, kind: str, alpha: float) -> Tensor:
    """The advantages of one response, of a group that is "correct", "wrong" or "mixed"."""
    if kind == "mixed":
        return torch.full_like(entropies, advantage)
    return alpha * (entropies if kind == "correct" else entropies - entropies.max())


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    seed=st.integers(0, 2**31),
    kinds=st.lists(st.sampled_from(["correct", "wrong", "mixed"]), min_size=4, max_size=4),
    on_policy=st.booleans(),
)
def test_value_and_gradient_are_those_of_the_paper(
    lengths: list[int], seed: int, kinds: list[str], on_policy: bool
) -> None:
    """REINFORCE's loss, whose gradient is minus the advantage of each token."""
    g = torch.Generator().manual_seed(seed)
    logps = -3 * torch.rand(sum(lengths), generator=g, dtype=F64)
    entropies = (2 * torch.rand(sum(lengths), generator=g, dtype=F64)).requires_grad_()
    advantages = torch.randn(len(lengths), generator=g, dtype=F64)
    marks = {"correct": 2.0**-100, "wrong": -(2.0**-100)}
    given = torch.tensor([marks.get(k, a) for k, a in zip(kinds, advantages.tolist(), strict=False)], dtype=F64)
    inputs = batch_of(
        lengths,
        advantages=given,
        old_logps=None if on_policy else logps + 0.1,
        token_loss=zero_variance("reinforce", 0.2),
        loss_agg="token-sum",
    )
    leaf = logps.clone().requires_grad_()
    token_loss(leaf, entropies, inputs).sum().backward()
    of_responses = zip(entropies.detach().split(lengths), advantages.tolist(), kinds, strict=False)
    expected = torch.cat([formula(one, advantage, kind, 0.2) for one, advantage, kind in of_responses])
    torch.testing.assert_close(-leaf.grad, expected, rtol=1e-12, atol=1e-12)
    assert entropies.grad is None  # a constant


def test_from_rewards_to_the_gradient_of_a_head() -> None:
    """An all-correct, an all-wrong and a mixed group: fused equals the formula on plain logits in float64."""
    g = torch.Generator().manual_seed(0)
    hidden = torch.randn(6, 4, H, generator=g, dtype=F64)
    weight = torch.randn(V, H, generator=g, dtype=F64).requires_grad_()
    labels, mask = torch.randint(V, (6, 4), generator=g), torch.ones(6, 4, dtype=torch.bool)
    mask[1, 2:] = False
    rewards = torch.tensor([[1.0, 1], [0, 0], [1, 0]], dtype=F64)
    keys = torch.arange(6).view(3, 2)
    advantages = group_advantages(rewards, torch.arange(3), keys, adv_estimator="rl_zvp", bonus="none").advantages
    given = {"token_loss": rl_zvp, "loss_agg": "token-sum"}
    linear_policy_loss(hidden, weight, labels, advantages.flatten(), mask, **given).loss.backward()
    ours = weight.grad
    weight.grad = None
    logps = torch.log_softmax(hidden @ weight.T, dim=-1)
    entropies = -(logps.exp() * logps).sum(dim=-1).detach()
    chosen = logps.gather(-1, labels[..., None])[..., 0]
    kinds = ["correct"] * 2 + ["wrong"] * 2 + ["mixed"] * 2
    lengths, grpo = mask.sum(dim=1), advantages.flatten().tolist()
    for row, kind in enumerate(kinds):
        length = int(lengths[row])
        size = formula(entropies[row, :length], grpo[row], kind, 0.1)
        (-(size * chosen[row, :length])).sum().backward(retain_graph=True)
    torch.testing.assert_close(ours, weight.grad, rtol=1e-9, atol=1e-11)


def test_a_mark_moves_no_policy_by_itself_and_a_bonus_replaces_it() -> None:
    mark = torch.tensor([-(2.0**-100)], dtype=F64)
    logps, entropies = torch.tensor([-1.0, -2.0], dtype=F64), torch.tensor([0.5, 1.0], dtype=F64)
    plain = token_loss(logps, entropies, batch_of([2], advantages=mark, token_loss="ppo"))
    assert plain.abs().max() < 1e-30
    bonused = batch_of([2], advantages=mark + 0.25, token_loss=zero_variance("reinforce"))
    assert token_loss(logps, entropies, bonused).tolist() == [0.25, 0.5]


def test_alpha_is_positive() -> None:
    with pytest.raises(ValueError, match="alpha must be > 0; got 0"):
        zero_variance("ppo", 0)
