"""The backward passes of the operators as autograd sees them; losses take their gradients in the forward pass."""

from typing import Any

import pytest
import torch
from loss_cases import H, V, needs_native
from torch import Tensor

from outcome_rl_kernels import linear_logprobs, linear_policy_loss, policy_loss

pytestmark = needs_native
LOSSES = ["linear", "from logits", "in place"]
OPERATORS = [*LOSSES, "log-probabilities", "of a support"]


def leaf_and_loss(which: str, dtype: torch.dtype = torch.float32, impl: str = "native") -> tuple[Tensor, Tensor]:
    """A weight or the logits, and their loss, or the sum of log-probabilities."""
    g = torch.Generator().manual_seed(0)
    arguments: tuple[Any, ...] = (torch.randint(V, (2, 5), generator=g), torch.randn(2, generator=g))
    arguments += (torch.ones(2, 5, dtype=torch.bool),)
    hidden, weight = torch.randn(2, 5, H, generator=g), torch.randn(V, H, generator=g)
    if which == "linear":
        leaf = weight.to(dtype).requires_grad_()
        return leaf, linear_policy_loss(hidden.to(dtype), leaf, *arguments, impl=impl).loss
    if which not in LOSSES:
        leaf = weight.to(dtype).requires_grad_()
        support = (torch.arange(11) * V, torch.arange(V).repeat(10)) if which == "of a support" else None
        return leaf, linear_logprobs(hidden.to(dtype), leaf, arguments[0], support=support, impl=impl)[0].sum()
    leaf = (hidden @ weight.T).to(dtype).requires_grad_()
    inplace = which == "in place"
    return leaf, policy_loss(leaf.clone(), *arguments, inplace=inplace, impl=impl).loss


@pytest.mark.parametrize("which", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("factor", [1 / 3, -4.0, 0.0])
def test_the_loss_may_be_scaled(which: str, dtype: torch.dtype, factor: float) -> None:
    leaf, loss = leaf_and_loss(which, dtype)
    loss.backward()
    scaled, loss = leaf_and_loss(which, dtype)
    (loss * factor).backward()
    expected = leaf.grad.double() * torch.tensor(factor, dtype=torch.float32)  # the factor itself is not rounded
    torch.testing.assert_close(scaled.grad, expected.to(dtype), atol=0, rtol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("which", OPERATORS)
def test_a_retained_graph_gives_the_same_gradients_again(which: str) -> None:
    leaf, loss = leaf_and_loss(which)
    once = torch.autograd.grad(loss, leaf, retain_graph=True)[0].clone()
    for times in (1, 2, 3):
        loss.backward(retain_graph=times < 3)
        torch.testing.assert_close(leaf.grad, times * once)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


@pytest.mark.parametrize("which", LOSSES)
@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_a_retained_graph_does_not_care_what_became_of_the_gradient(which: str, factor: float) -> None:
    leaf, loss = leaf_and_loss(which)
    (factor * loss).backward(retain_graph=True)
    first = leaf.grad.clone()
    leaf.grad.zero_()
    (2 * loss).backward()
    torch.testing.assert_close(leaf.grad, 2 / factor * first)


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_the_gradient_of_the_weight_is_given_away_rather_than_copied(factor: float) -> None:
    """A copy would cost a pass over V x H, and its memory."""
    leaf, loss = leaf_and_loss("linear")
    places = [grad.data_ptr() for grad in loss.grad_fn.saved_tensors if grad is not None]
    loss.backward(torch.tensor(factor))
    assert places == [leaf.grad.data_ptr()]


@pytest.mark.parametrize("which", OPERATORS)
def test_second_derivatives_are_refused(which: str) -> None:
    leaf, loss = leaf_and_loss(which)
    with pytest.raises(RuntimeError, match=r"has no second derivatives; use impl='reference'"):
        torch.autograd.grad(loss, leaf, create_graph=True)


@pytest.mark.parametrize("which", LOSSES)
@pytest.mark.parametrize("retain_graph", [False, True])
def test_gradients_carry_no_graph(which: str, retain_graph: bool) -> None:
    leaf, loss = leaf_and_loss(which)
    (gradient,) = torch.autograd.grad(loss, leaf, retain_graph=retain_graph)
    assert not gradient.requires_grad
