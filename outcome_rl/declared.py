"""Check values from a file against Python's type annotations."""

from array import array
from collections.abc import Collection
from dataclasses import is_dataclass
from itertools import chain
from types import UnionType
from typing import Any, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict


def check_types(name: str, values: Collection[Any], declared: Any) -> None:
    """Check that each of many values has a declared type.

    All values of one place are checked together, so a million of them take a fraction of a second.

    Args:
        name: name of the place, for errors.
        values: values to check.
        declared: a plain type, None, a union of such, a `list`, `set` or `dict` of declared types, or a `NamedTuple`,
            dataclass or `TypedDict` with such fields. An integer has 64 bits; `Any` takes everything.

    Raises:
        ValueError: a value has another type, or lacks a field.
    """
    origin, inner = get_origin(declared) or declared, get_args(declared)
    if declared is Any or not values:
        return
    kinds = inner if origin in (Union, UnionType) else (origin,)
    kinds = tuple(dict if is_typeddict(kind) else kind for kind in kinds)
    for found in {*map(type, values)}:
        # bool is a subclass of int, but `true` in place of a number is an error.
        if not issubclass(found, kinds) or (found is bool and bool not in kinds):
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise ValueError(f"{name} must be {expected}; got {found.__name__}")
    if int in kinds:
        try:
            array("q", values if kinds == (int,) else [value for value in values if isinstance(value, int)])
        except OverflowError as error:
            raise ValueError(f"{name} must fit into 64 bits") from error
    elif origin is dict and inner:
        check_types(f"{name}, a key,", list(chain.from_iterable(values)), inner[0])
        check_types(name, list(chain.from_iterable(value.values() for value in values)), inner[1])
    elif origin in (list, set) and inner:
        check_types(name, list(chain.from_iterable(values)), inner[0])
    elif is_typeddict(declared):
        for field, kind in get_type_hints(declared, include_extras=True).items():
            optional = get_origin(kind) is NotRequired
            if not optional and not all(field in value for value in values):
                raise ValueError(f"{name} lacks {field!r}")
            kind = get_args(kind)[0] if optional else kind
            check_types(f"{name}.{field}", [value[field] for value in values if field in value], kind)
    elif is_dataclass(declared) or hasattr(declared, "_fields"):
        for field, kind in get_type_hints(declared).items():
            check_types(f"{name}.{field}", [getattr(value, field) for value in values], kind)
