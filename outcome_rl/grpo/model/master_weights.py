"""Float32 master weights of a model in bfloat16.

bfloat16 keeps 8 bits, so it rounds a step of 1e-6 on a weight of 0.1 away. The optimizer therefore steps a float32 copy
of each weight, and the model gets the rounded values. Gradients accumulate in float32 as well, micro-batch after
micro-batch: each is moved from the model's weight to its master as soon as it is computed.

A model in float32 is its own master, and so is a sharded one whose float32 shards are cast when they are gathered.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from outcome_rl.grpo.model.fsdp import HALF_PRECISION, shard_like


class MasterWeights:
    """Parameters that the optimizer steps, for the trained weights of a model.

    Attributes:
        parameters: float32 (float64 of a float64 model), with their gradients after a backward pass.
    """

    def __init__(self, model: nn.Module, *, casts_on_gather: bool = False) -> None:
        """Make the masters of a model, full or sharded; `ShardedModel` explains `casts_on_gather`."""
        self.parameters: list[nn.Parameter] = []
        self._unsaved: list[nn.Parameter] = []  # the saved model holds only their rounded values
        self._copies: list[tuple[nn.Parameter, nn.Parameter]] = []  # a weight of the model and its master
        for weight in model.parameters():
            if not weight.requires_grad:
                continue
            master = weight
            if weight.dtype in HALF_PRECISION:
                master = nn.Parameter(weight.detach().float())
                self._copies.append((weight, master))
                weight.register_post_accumulate_grad_hook(partial(_move_gradient, master))  # type: ignore[no-untyped-call]
            if casts_on_gather or master is not weight:
                self._unsaved.append(master)
            self.parameters.append(master)

    @torch.no_grad()
    def copy_to_model(self) -> None:
        """Round the masters into the model's weights, after an optimizer step."""
        for weight, master in self._copies:
            weight.copy_(master)

    def state_dict(self) -> list[Tensor]:
        """Return the masters that the saved model does not hold exactly."""
        return [master.detach() for master in self._unsaved]

    @torch.no_grad()
    def load_state_dict(self, state: list[Tensor]) -> None:
        for master, saved in zip(self._unsaved, state, strict=True):
            master.copy_(shard_like(saved, master))
        self.copy_to_model()


def _move_gradient(master: nn.Parameter, weight: Any) -> None:
    """Add the gradient of a weight to its master's, and free it."""
    if master.grad is None:
        master.grad = weight.grad.float()
    else:
        master.grad += weight.grad
    weight.grad = None
