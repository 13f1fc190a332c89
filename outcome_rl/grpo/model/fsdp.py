"""A model's weights, gradients and optimizer shared out among the processes of a run: PyTorch's `fully_shard` (FSDP2).

Each process holds and steps its rows of every weight, in float32. What is whole is whole for a while:

    forward    a layer, while it computes; embedding and lm_head from there to the end of the backward pass, since the
               loss takes the lm_head's weight by itself
    backward   a layer once more; then each process gets its rows of the gradient, added up over the processes
    rollouts   everything (`whole`), because processes decode different numbers of tokens
    files      a weight at a time (`gathered_model`, `gathered`), on its way to the machine's memory

Gathering waits for all processes, so each of them must enter the same passes. What was whole keeps the form that it has
in a run of one process: a checkpoint belongs to no number of processes.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

# PyTorch's own sharding is imported where it is used: it brings sympy with it.
if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

ROUNDED = (torch.bfloat16, torch.float16)


class ShardedModel:
    """A model of which this process holds a part.

    Attributes:
        outline: the model as it was, without its weights.
        rounds: whether the parts are float32 and rounded when they are gathered.
        forward: its body, as a pass that all processes enter; the lm_head's weight is whole after it, until a backward
            pass or `drop`.
    """

    def __init__(self, model: Any, body: nn.Module, layers: Sequence[nn.Module], device: torch.device) -> None:
        """Change a model, which is equal in all processes, in place.

        Args:
            model: a causal language model of transformers.
            body: the part of it that gives hidden states.
            layers: modules of the body that are to be whole at different times.
            device: the kind of device that its parts belong on.

        Raises:
            ValueError: its weights are of several dtypes.
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

        dtypes = {parameter.dtype for parameter in model.parameters()}
        if len(dtypes) > 1:
            raise ValueError(
                f"actor.strategy=fsdp2 needs weights of one dtype; {type(model).__name__} has "
                f"{', '.join(sorted(map(str, dtypes)))}. Set model.dtype=float32, or actor.strategy=ddp"
            )
        self.outline = _outline(model)
        self._model = model
        trained = any(parameter.requires_grad for parameter in model.parameters())
        precision = MixedPrecisionPolicy(cast_forward_inputs=False)
        self.rounds = trained and self.outline.dtype in ROUNDED
        if self.rounds:
            precision = MixedPrecisionPolicy(self.outline.dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for module in (*layers, model):
            for parameter in module.parameters() if self.rounds else ():
                parameter.data = parameter.data.float()  # those of a layer are shared out before the next layer's grow
            fully_shard(module, mesh=mesh, mp_policy=precision, reshard_after_forward=module is not model)
        for part in self._parts():
            part.set_gradient_divide_factor(1.0)  # gradients are added up, not averaged,
            part.set_force_sum_reduction_for_comms(True)  # by the one operation that gloo has too
        model.run_body = body.__call__
        register_fsdp_forward_method(model, "run_body")
        self.forward = model.run_body

    @contextmanager
    def whole(self) -> Iterator[None]:
        """All weights are whole, so that no pass waits for another process."""
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

    def drop(self) -> None:
        """Let go of what `forward` left whole, where no backward pass follows."""
        self._model.reshard()

    @torch.no_grad()
    def gathered_model(self, *, everywhere: bool) -> Any:
        """The model as it was, with its present weights, in the machine's memory of the first process or of all;
        elsewhere without weights."""
        from torch.distributed.tensor import DTensor

        model = copy.deepcopy(self.outline)
        state: dict[str, Tensor] = {}
        found: dict[Tensor, Tensor | None] = {}  # tied weights have two names
        for name, tensor in self._model.state_dict(keep_vars=True).items():
            if tensor not in found:
                rounded = tensor.detach().to(self.outline.dtype) if isinstance(tensor, DTensor) else tensor.cpu()
                found[tensor] = gathered(rounded, everywhere=everywhere)
            whole = found[tensor]
            if whole is not None:
                state[name] = whole
        if state:
            model.load_state_dict(state, assign=True)
        return model

    def _parts(self) -> "list[FSDPModule]":
        from torch.distributed.fsdp import FSDPModule

        return [module for module in self._model.modules() if isinstance(module, FSDPModule)]


def gathered(state: Any, *, everywhere: bool = False) -> Any:
    """A nesting of dicts and lists with its sharded tensors whole, in the machine's memory of the first process, or of
    all; elsewhere None stands in their places. Others stay what they are."""

    from torch.distributed.tensor import DTensor

    def whole(tensor: "DTensor") -> Tensor | None:
        full = tensor.full_tensor()
        return full.cpu() if everywhere or dist.get_rank() == 0 else None

    return tree_map_only(DTensor, whole, state)


def part_of(whole: Tensor, like: Tensor) -> Tensor:
    """This process's part of a tensor that all of them have, if `like` is sharded and of its shape."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor) or whole.shape != like.shape:
        return whole
    whole = whole.to(like.device)
    return cast(Tensor, distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None))


def part_of_optimizer(state: Mapping[str, Any], parameters: Sequence[Tensor]) -> dict[str, Any]:
    """The state of an optimizer, of which its moments are shared out as its parameters are."""
    moments = {
        index: {name: part_of(value, parameters[index]) for name, value in of_one.items()}
        for index, of_one in state["state"].items()
    }
    return {**state, "state": moments}


def plain(tensor: Tensor) -> Tensor:
    """A number that every process has a part of, such as a norm."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _outline(model: Any) -> Any:
    """A copy of a model whose parameters take no memory."""
    empty = {
        id(parameter): nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=False)
        for parameter in model.parameters()
    }
    return copy.deepcopy(model, empty)
