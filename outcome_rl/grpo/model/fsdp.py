"""Weights, gradients and optimizer state sharded over the processes of a run: PyTorch's `fully_shard` (FSDP2).

Each process holds its rows of every weight, and steps those that are trained, in float32. LoRA trains adapters alone:
frozen weights keep their dtype. Full weights are gathered for a while:

    forward    a layer, while it computes; embedding and lm_head until the end of the backward pass, because the loss
               takes the lm_head's weight
    backward   a layer once more; then each process gets its rows of the gradient, summed over the processes
    rollouts   all layers (`summon_full_params`), because processes decode different numbers of tokens
    files      a weight at a time (`full_model`, `full_state`), on its way to host memory

Gathering is collective, so every process must enter the same passes. Full copies have the same form as in a run of one
process: a checkpoint does not depend on the number of processes.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from outcome_rl.grpo.model.weight_layout import without_weights

# PyTorch's own sharding is imported where it is used: it imports sympy.
if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

HALF_PRECISION = (torch.bfloat16, torch.float16)


class ShardedModel:
    """A model that is sharded over the processes; this one holds a shard.

    Attributes:
        meta_model, meta_adapters: the model and peft's wrapper of it before sharding, without weights.
        casts_on_gather: whether the shards are float32 and cast to the model's dtype when they are gathered.
        forward: its body, as a pass that all processes enter; afterwards the lm_head's weight is full until a backward
            pass or `reshard`.
    """

    def __init__(
        self, model: Any, adapters: Any, body: nn.Module, layers: Sequence[nn.Module], device: torch.device
    ) -> None:
        """Shard a model, equal in all processes, in place.

        Args:
            model: a causal language model of transformers.
            adapters: peft's wrapper of it, or None.
            body: the part of it that computes hidden states.
            layers: modules of the body that are gathered one after another.
            device: the kind of device that holds the shards.

        Raises:
            ValueError: its trained weights have several dtypes.
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

        dtypes = {parameter.dtype for parameter in model.parameters() if parameter.requires_grad}
        if len(dtypes) > 1:
            raise ValueError(
                f"actor.strategy=fsdp2 needs trained weights of one dtype; {type(model).__name__} has "
                f"{', '.join(sorted(map(str, dtypes)))}. Set model.dtype=float32, or actor.strategy=ddp"
            )
        self.meta_model, self.meta_adapters = without_weights((model, adapters))
        self._model = model
        precision = MixedPrecisionPolicy(cast_forward_inputs=False)
        self.casts_on_gather = not dtypes.isdisjoint(HALF_PRECISION)
        if self.casts_on_gather:
            precision = MixedPrecisionPolicy(
                self.meta_model.dtype, reduce_dtype=torch.float32, cast_forward_inputs=False
            )
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for module in (*layers, model):
            for parameter in module.parameters() if self.casts_on_gather else ():
                parameter.data = parameter.data.float()  # a layer is sharded before the next one grows
            fully_shard(module, mesh=mesh, mp_policy=precision, reshard_after_forward=module is not model)
        for part in self._parts():
            part.set_gradient_divide_factor(1.0)  # gradients are summed, not averaged,
            part.set_force_sum_reduction_for_comms(True)  # by the one operation that gloo has too
        model.run_body = body.__call__
        register_fsdp_forward_method(model, "run_body")
        self.forward = model.run_body

    @contextmanager
    def summon_full_params(self) -> Iterator[None]:
        """Hold all weights in full, so that no pass waits for another process."""
        self._model.set_reshard_after_forward(False)
        try:
            for part in self._parts():
                part.unshard()
            yield
        finally:
            self._model.set_reshard_after_forward(True)
            self._model.set_reshard_after_forward(False, recurse=False)
            for part in self._parts():
                part.reshard()

    def reshard(self) -> None:
        """Free the full weights that `forward` left, where no backward pass follows."""
        self._model.reshard()

    @torch.no_grad()
    def full_model(self, *, everywhere: bool) -> tuple[Any, Any]:
        """Return an unsharded copy of the model and of peft's wrapper in host memory, on rank zero or everywhere;
        elsewhere without weights.
        """
        from torch.distributed.tensor import DTensor

        model, adapters = copy.deepcopy((self.meta_model, self.meta_adapters))
        state: dict[str, Tensor] = {}
        known: dict[Tensor, Tensor | None] = {}  # tied weights have two names
        unsharded = model.state_dict()
        for name, tensor in self._model.state_dict(keep_vars=True).items():
            if tensor not in known:
                is_shard = isinstance(tensor, DTensor)
                cast_shard = tensor.detach().to(unsharded[name].dtype) if is_shard else tensor.cpu()
                known[tensor] = full_state(cast_shard, everywhere=everywhere)
            full = known[tensor]
            if full is not None:
                state[name] = full
        if state:
            model.load_state_dict(state, assign=True)
        return model, adapters

    def _parts(self) -> "list[FSDPModule]":
        from torch.distributed.fsdp import FSDPModule

        return [module for module in self._model.modules() if isinstance(module, FSDPModule)]


def full_state(state: Any, *, everywhere: bool = False) -> Any:
    """Gather the sharded tensors in a nesting of dicts and lists into host memory, on rank zero or everywhere.

    Elsewhere None takes their place. Unsharded tensors stay as they are. All processes must call it.
    """
    from torch.distributed.tensor import DTensor

    def gather(tensor: "DTensor") -> Tensor | None:
        full = tensor.full_tensor()
        return full.cpu() if everywhere or dist.get_rank() == 0 else None

    return tree_map_only(DTensor, gather, state)


def shard_like(full: Tensor, like: Tensor) -> Tensor:
    """Return this process's shard of a tensor that all of them hold, if `like` is sharded and has its shape."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor) or full.shape != like.shape:
        return full
    full = full.to(like.device)
    return cast(Tensor, distribute_tensor(full, like.device_mesh, like.placements, src_data_rank=None))


def shard_optimizer_state(state: Mapping[str, Any], parameters: Sequence[Tensor]) -> dict[str, Any]:
    """Shard the moments in the state of an optimizer as its parameters are sharded."""
    moments = {
        index: {name: shard_like(value, parameters[index]) for name, value in of_one.items()}
        for index, of_one in state["state"].items()
    }
    return {**state, "state": moments}


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the full value of a tensor that may be sharded, such as a norm; all processes must call it."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
