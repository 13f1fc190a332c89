"""The optimizer steps float32 weights; the model holds them rounded."""

import pytest
import torch
from torch import nn

from outcome_rl.grpo.model.master_weights import MasterWeights


def tied_model(dtype: torch.dtype) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)).to(dtype)
    model[1].weight = model[0].weight
    return model


def test_a_float32_model_is_its_own_master() -> None:
    model = tied_model(torch.float32)
    weights = MasterWeights(model)
    assert len(weights.parameters) == 1
    assert weights.parameters[0] is model[0].weight
    assert weights.state_dict() == []
    model(torch.ones(1, 4)).sum().backward()
    assert model[0].weight.grad is not None


def test_gradients_add_up_in_float32() -> None:
    """A thousand small gradients onto a large one: bfloat16 would keep none of them."""
    weight = nn.Linear(1, 1, bias=False).bfloat16()
    (master,) = MasterWeights(weight).parameters
    for size in [1.0] + [2.0**-10] * 1000:
        (weight.weight * size).sum().backward()
        assert weight.weight.grad is None
    assert master.grad.item() == pytest.approx(1 + 1000 * 2.0**-10)
    assert master.grad.dtype == torch.float32


def test_small_steps_accumulate() -> None:
    model = tied_model(torch.bfloat16)
    weights = MasterWeights(model)
    (master,) = weights.parameters
    start = model[0].weight.detach().clone()
    for number in (1, 200):
        with torch.no_grad():
            master.copy_(start.float() * (1 + number * 2.0**-14))
        weights.copy_to_model()
        assert torch.equal(model[0].weight, start) == (number == 1)
    assert torch.equal(model[0].weight, master.bfloat16())
    assert model[0].weight is model[1].weight


def test_masters_are_restored_beyond_the_precision_of_the_model() -> None:
    one, two = tied_model(torch.bfloat16), tied_model(torch.bfloat16)
    first, second = MasterWeights(one), MasterWeights(two)
    with torch.no_grad():
        first.parameters[0].mul_(1 + 1e-4)
    first.copy_to_model()
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.parameters[0], first.parameters[0])
    assert not torch.equal(second.parameters[0], two[0].weight.float())
    assert torch.equal(two[0].weight, one[0].weight)


def test_frozen_weights_have_no_master() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).bfloat16()
    model[0].requires_grad_(False)
    assert len(MasterWeights(model).parameters) == 2
