"""Names, shapes and dtypes of published weights, by which every model that is saved is compared with its source."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Entry(NamedTuple):
    """Shape and dtype of a tensor, as safetensors files spell them."""

    shape: tuple[int, ...]
    dtype: str


WeightLayout = Mapping[str, Entry]


def published(model: Any, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a state of a model by the names that Hugging Face publishes; a tied weight occurs once."""
    from transformers.core_model_loading import revert_weight_conversion
    from transformers.modeling_utils import remove_tied_weights_from_state_dict

    weights: dict[str, Tensor] = revert_weight_conversion(model, remove_tied_weights_from_state_dict(state, model))
    return weights


def published_layout(model: Any) -> WeightLayout:
    """Return the layout of the weights of a model without adapters; they are not copied."""
    empty = without_weights(model)
    return layout_of(published(empty, empty.state_dict()))


def without_weights(modules: Any) -> Any:
    """Copy a module, or a tuple of modules, onto the meta device: the parameters take no memory."""
    several = modules if isinstance(modules, tuple) else (modules,)
    parameters = (parameter for module in several if module is not None for parameter in module.parameters())
    empty = {id(one): nn.Parameter(torch.empty_like(one, device="meta"), requires_grad=False) for one in parameters}
    return copy.deepcopy(modules, empty)


def layout_of(tensors: Mapping[str, Tensor]) -> WeightLayout:
    """Return the layout of tensors."""
    return {name: Entry(tuple(tensor.shape), _spelled(tensor.dtype)) for name, tensor in tensors.items()}


def with_dtype_of(layout: WeightLayout, dtype: torch.dtype) -> WeightLayout:
    """Return the layout of the same tensors after all with fractions were cast."""
    is_float = ("F", "BF")
    return {
        name: entry._replace(dtype=_spelled(dtype)) if entry.dtype.rstrip("0123456789") in is_float else entry
        for name, entry in layout.items()
    }


def read_layout(folder: Path) -> WeightLayout:
    """Read the layout of the safetensors files of a folder from their headers."""
    from safetensors import safe_open

    entries = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                part = file.get_slice(name)
                entries[name] = Entry(tuple(part.get_shape()), part.get_dtype())
    return entries


def check_layout(found: WeightLayout, source: WeightLayout, what: str) -> None:
    """Check that weights have the names, shapes and dtypes of their source.

    Args:
        found, source: the two layouts.
        what: the weights, as the subject of a sentence.

    Raises:
        ValueError: they do not; the message names some that differ.
    """
    if found != source:
        names = sorted(name for name in found.keys() | source.keys() if found.get(name) != source.get(name))
        shown = "; ".join(f"{name}: {found.get(name)} for {source.get(name)}" for name in names[:3])
        raise ValueError(
            f"{what} would not be the model that was loaded: {len(names)} of {len(source)} tensors differ ({shown}). "
            "Train it without LoRA, or take another version of transformers or peft"
        )


def _spelled(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    for kind, letter in (("float", "F"), ("uint", "U"), ("int", "I")):
        name = name.replace(kind, letter)
    return name.upper()
