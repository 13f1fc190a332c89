"""Weights in float32 behind a model in bfloat16.

bfloat16 keeps 8 bits, so a step of 1e-6 on a weight of 0.1 is nothing to it. The optimizer therefore steps a float32
copy of each weight, and the model gets that rounded. Gradients add up in float32 as well, micro-batch after
micro-batch: each is taken from the model's weight as soon as it is there.

A model in float32 is its own master.
"""

from typing import Any

import torch
from torch import Tensor, nn


class MasterWeights:
    """What the optimizer steps, for the trained weights of a model.

    Attributes:
        parameters: float32 (float64 of a float64 model), with their gradients after a backward pass.
    """

    def __init__(self, model: nn.Module) -> None:
        self.parameters: list[nn.Parameter] = []
        self._copies: list[tuple[nn.Parameter, nn.Parameter]] = []  # a weight of the model and its master
        for weight in model.parameters():
            if not weight.requires_grad:
                continue
            master = weight
            if weight.dtype in (torch.bfloat16, torch.float16):
                master = nn.Parameter(weight.detach().float())
                self._copies.append((weight, master))
                weight.register_post_accumulate_grad_hook(_HandOver(master))  # type: ignore[no-untyped-call]
            self.parameters.append(master)

    @torch.no_grad()
    def publish(self) -> None:
        """Round the masters into the model, after they were stepped."""
        for weight, master in self._copies:
            weight.copy_(master)

    def state_dict(self) -> list[Tensor]:
        """The masters that the model's own weights do not hold already."""
        return [master.detach() for _, master in self._copies]

    @torch.no_grad()
    def load_state_dict(self, state: list[Tensor]) -> None:
        for (_, master), saved in zip(self._copies, state, strict=True):
            master.copy_(saved)
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
