"""Weights in float32 behind a model in bfloat16.

bfloat16 keeps 8 bits, so a step of 1e-6 on a weight of 0.1 is nothing to it. The optimizer therefore steps a float32
copy of each weight, and the model gets that rounded. Gradients add up in float32 as well, micro-batch after
micro-batch: each is taken from the model's weight as soon as it is there.

A model in float32 is its own master, and so is one whose float32 weights are rounded when they are gathered.
"""

from typing import Any

import torch
from torch import Tensor, nn

from outcome_rl.grpo.model.fsdp import ROUNDED, part_of


class MasterWeights:
    """What the optimizer steps, for the trained weights of a model.

    Attributes:
        parameters: float32 (float64 of a float64 model), with their gradients after a backward pass.
    """

    def __init__(self, model: nn.Module, *, rounds: bool = False) -> None:
        """Args:
        model: with its weights, whole or sharded.
        rounds: whether its weights are rounded by the model, when it gathers them.
        """
        self.parameters: list[nn.Parameter] = []
        self._unsaved: list[nn.Parameter] = []  # masters that the saved model holds rounded
        self._copies: list[tuple[nn.Parameter, nn.Parameter]] = []  # a weight of the model and its master
        for weight in model.parameters():
            if not weight.requires_grad:
                continue
            master = weight
            if weight.dtype in ROUNDED:
                master = nn.Parameter(weight.detach().float())
                self._copies.append((weight, master))
                weight.register_post_accumulate_grad_hook(_HandOver(master))  # type: ignore[no-untyped-call]
            if rounds or master is not weight:
                self._unsaved.append(master)
            self.parameters.append(master)

    @torch.no_grad()
    def publish(self) -> None:
        """Round the masters into the model, after they were stepped."""
        for weight, master in self._copies:
            weight.copy_(master)

    def state_dict(self) -> list[Tensor]:
        """The masters that the saved model does not hold already."""
        return [master.detach() for master in self._unsaved]

    @torch.no_grad()
    def load_state_dict(self, state: list[Tensor]) -> None:
        for master, saved in zip(self._unsaved, state, strict=True):
            master.copy_(part_of(saved, master))
        self.publish()


class _HandOver:
    """Adds the gradient of a weight to its master's and frees it."""

    def __init__(self, master: nn.Parameter) -> None:
        self.master = master

    def __call__(self, weight: Any) -> None:
        if self.master.grad is None:
            self.master.grad = weight.grad.float()
        else:
            self.master.grad += weight.grad
        weight.grad = None
