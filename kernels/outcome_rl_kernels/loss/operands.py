"""The arguments of an operator, which takes tensors, numbers and strings only, and autograd inside of one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, get_type_hints

import torch
from torch import Tensor

from outcome_rl_kernels.loss.types import SETTINGS, LossInputs, LossSettings, Sequences, TokenBatch

_TYPES: dict[Any, str] = {
    **{Tensor: "Tensor", Tensor | None: "Tensor?"},
    **{bool: "bool", float: "float", float | None: "float?", int: "SymInt", int | None: "SymInt?"},
}
_COLUMNS = {
    name: _TYPES[hint]
    for record in (TokenBatch, LossInputs)
    for name, hint in get_type_hints(record).items()
    if hint in _TYPES  # not another record
}


def schema_of(kinds: Mapping[str, str]) -> str:
    """Return the arguments of an operator from their names and types."""
    return ", ".join(f"{kind} {name}" for name, kind in kinds.items())


def operator_types(record: Any) -> dict[str, str]:
    """Return the types of an operator's arguments that are the fields of a record: names are texts."""
    return {name: _TYPES.get(hint, "str") for name, hint in get_type_hints(record).items()}


_DECLARED = {
    **_COLUMNS,
    **{"sequence_ids": "Tensor?", "num_sequences": "SymInt"},
    **operator_types(LossSettings),
}
SCHEMA = schema_of(_DECLARED)


def flat(batch: TokenBatch) -> tuple[Any, ...]:
    """Return the arguments that `SCHEMA` declares.

    Raises:
        TypeError: the token loss has no name.
    """
    inputs, settings = batch.inputs, batch.inputs.settings
    if not isinstance(settings.token_loss, str):
        raise TypeError(
            "torch.compile and fake tensors accept a token loss by name only; got "
            f"{settings.token_loss!r}. Give it one: register_token_loss(name, loss)"
        )
    columns = {**batch._asdict(), **inputs._asdict()}
    return (
        *(columns[name] for name in _COLUMNS),
        *(inputs.sequences or (None, 0)),
        *(getattr(settings, name) for name in SETTINGS),
    )


def batch_of(*arguments: Any) -> TokenBatch:
    """Return the batch that `flat` turned into these arguments."""
    given = dict(zip(_DECLARED, arguments, strict=True))
    ids, number = given["sequence_ids"], given["num_sequences"]
    inputs = LossInputs(
        sequences=None if ids is None else Sequences(ids, number),
        settings=LossSettings(**{name: given[name] for name in SETTINGS}),
        **{name: given[name] for name in LossInputs._fields if name in _COLUMNS},
    )
    return TokenBatch(inputs, **{name: given[name] for name in TokenBatch._fields if name in _COLUMNS})


@contextmanager
def recorded() -> Iterator[None]:
    """Record a graph for autograd, even inside an operator, where PyTorch disables it."""
    include, exclude = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    exclude = exclude.remove(torch._C.DispatchKey.AutogradFunctionality)
    with torch._C._ForceDispatchKeyGuard(include, exclude), torch.enable_grad():
        yield
