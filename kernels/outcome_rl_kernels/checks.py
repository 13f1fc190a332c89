"""Argument checks of the public ops: every message names the argument, what was expected, what came, and the fix."""

import math
from collections.abc import Iterable
from difflib import get_close_matches

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MASKS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)  # what tokenizers and stacks give
PLAIN = (Tensor, torch.nn.Parameter)


def shape_text(tensor: Tensor) -> str:
    return f"({', '.join(map(str, tensor.shape))}{',' if tensor.dim() == 1 else ''})"


def dtype_text(dtypes: Iterable[torch.dtype]) -> str:
    return " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return a hint for an error about an unknown name: the nearest known one, or an empty text."""
    nearest = get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def is_readable(tensor: Tensor) -> bool:
    """Return whether a check may read the values: on the CPU, and neither compiled nor of a fake tensor."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling() and type(tensor) in PLAIN


def is_traced(tensor: Tensor) -> bool:
    """Return whether calls need registered operators: under a compiler or dispatch mode, or for tensor subclasses."""
    return torch.compiler.is_compiling() or type(tensor) not in PLAIN or is_in_torch_dispatch_mode()


def refuse_second_derivatives(upstream: Tensor, op: str) -> None:
    """Raise a RuntimeError if the backward pass of gradient `upstream` is to be differentiated itself."""
    if torch.is_grad_enabled() and not is_traced(upstream):
        raise RuntimeError(f"{op} has no second derivatives; use impl='reference' with create_graph=True")


def check_number(name: str, value: object, *, least: float = -math.inf) -> float:
    """Return `value` if it is a finite Python number, at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        fix = f". Use {name}.item()" if isinstance(value, Tensor) else ""
        raise TypeError(f"{name} must be a Python number; got {type(value).__name__}{fix}")
    if not (least <= value < math.inf and value > -math.inf):  # torch.compile traces no isfinite
        bound = "" if least == -math.inf else f" and >= {least:g}"
        raise ValueError(f"{name} must be finite{bound}; got {value}")
    return value


def check_finite(name: str, values: Tensor, fix: str, where: Tensor | None = None) -> None:
    """Refuse numbers that are not finite, of those that `where` marks; on the CPU only, where looking is no wait."""
    if not is_readable(values):
        return
    fine = values.isfinite() if where is None else values.isfinite() | ~where
    if not fine.all():
        index = (~fine).nonzero()[0].tolist()
        raise ValueError(f"{name} must be finite; got {values[tuple(index)].item()} at index {index}. {fix}")


def check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Refuse a value that is not one of `choices`."""
    if value not in choices:
        hint = did_you_mean(value, map(str, choices))
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}{hint}")


def check_tensor(
    name: str, value: object, dtypes: tuple[torch.dtype, ...], device: torch.device | None = None
) -> Tensor:
    """Return `value` if it is a tensor of one of `dtypes`, on `device` if the call has one already."""
    if not isinstance(value, Tensor):
        fix = "" if value is None else f". Use torch.as_tensor({name})"
        if isinstance(value, torch.nn.Module) or hasattr(value, "weight"):
            fix = ". Pass its parameter, such as lm_head.weight"
        raise TypeError(f"{name} must be a torch.Tensor; got {type(value).__name__}{fix}")
    if hasattr(value, "device_mesh"):  # a DTensor; torch.distributed is too heavy an import to ask for its type
        raise TypeError(
            f"{name} must be whole on every rank; got a {type(value).__name__}, which is sharded. Call the loss in the "
            "forward of a module that fully_shard wraps, where the weight is gathered: docs/losses.md has the recipe"
        )
    if value.dtype not in dtypes:
        method = {torch.bool: "bool", torch.int32: "int", torch.int64: "long"}.get(dtypes[0], "float")
        raise TypeError(
            f"{name} must have dtype {dtype_text(dtypes)}; got {dtype_text([value.dtype])}. Use {name}.{method}()"
        )
    if device is not None and value.device != device:
        raise ValueError(
            f"{name} must be on {device}, like the other tensors; got {value.device}. Use {name}.to({str(device)!r})"
        )
    return value


def check_shape_of(name: str, value: Tensor, other_name: str, other: Tensor) -> Tensor:
    """Return `value` if it is a tensor of the shape of another argument."""
    if not isinstance(value, Tensor):  # of a user's function
        raise TypeError(f"{name} must be a torch.Tensor; got {type(value).__name__}")
    if value.shape != other.shape:
        raise ValueError(f"{name} must have the shape of {other_name}, {shape_text(other)}; got {shape_text(value)}")
    return value


def as_mask(name: str, value: object, other_name: str = "", other: Tensor | None = None) -> Tensor:
    """Return a bool mask, from bool or integers 0 and 1; with `other`, of its device and shape.

    On a GPU every integer but 0 is True: looking for others would synchronise.
    """
    if isinstance(value, Tensor) and value.dtype not in MASKS:
        got = dtype_text([value.dtype])
        raise TypeError(f"{name} must be bool, or integers 0 and 1; got {got}. Use {name}.bool()")
    mask = check_tensor(name, value, MASKS) if other is None else check_like(name, value, MASKS, other_name, other)
    if mask.dtype == torch.bool:
        return mask
    if is_readable(mask) and len(others := mask[(mask != 0) & (mask != 1)]):
        raise ValueError(f"{name} must be bool, or integers 0 and 1; got {others[0].item()}. Use {name} > 0")
    return mask.bool()


def check_like(name: str, value: object, dtypes: tuple[torch.dtype, ...], other_name: str, other: Tensor) -> Tensor:
    """Return `value` if it is a tensor of one of `dtypes` with the device and the shape of another argument."""
    return check_shape_of(name, check_tensor(name, value, dtypes, other.device), other_name, other)
