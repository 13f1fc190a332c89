"""Check values against Python's type annotations, and say in words what an annotation takes."""

from array import array
from collections.abc import Callable, Collection
from dataclasses import is_dataclass
from itertools import chain
from types import UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

# Type -> one of them, several of them.
_WORDS = {
    bool: ("true or false", "booleans"),
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    str: ("a string", "strings"),
    type(None): ("null", "nulls"),
}


def check_types(name: str, values: Collection[Any], declared: Any) -> None:
    """Check that each of many values has a declared type.

    All values of one place are checked together, so a million of them take a fraction of a second. An integer may stand
    for a number, and must fit into 64 bits; a list may stand for a tuple, and the other way round.

    Args:
        name: name of the place, for errors.
        values: values to check.
        declared: a plain type, None, `Any`, a `Literal`, a `Callable`, a `list`, `set`, `tuple` or `dict` of declared
            types, a `NamedTuple`, dataclass or `TypedDict` with such fields, or a union of these.

    Raises:
        ValueError: a value has another type, or lacks a field.
    """
    if declared is Any or not values:
        return
    classes = {kind: _classes(kind) for kind in alternatives(declared)}
    allowed = tuple(chain.from_iterable(classes.values()))
    for found in {*map(type, values)}:
        # bool is a subclass of int, but `true` in place of a number is an error.
        if not issubclass(found, allowed) or (found is bool and bool not in allowed):
            raise ValueError(f"{name} must be {in_words(declared)}; got {found.__name__}")
    if int in allowed:
        try:
            array("q", [value for value in values if isinstance(value, int)])
        except OverflowError as error:
            raise ValueError(f"{name} must fit into 64 bits") from error
    for kind, of_kind in classes.items():
        if kind not in _WORDS:
            _check_contents(name, [value for value in values if isinstance(value, of_kind)], kind)


def alternatives(declared: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself."""
    return get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)


def in_words(declared: Any) -> str:
    """Describe a type in words, such as "a number or a list of numbers"."""
    if len(kinds := alternatives(declared)) > 1:
        return " or ".join(map(in_words, kinds))
    origin, inner = get_origin(declared) or declared, get_args(declared)
    if origin is Literal:
        return f"one of {', '.join(map(repr, inner))}"
    if origin is list and inner and get_origin(inner[0]) is Literal:
        return f"some of {', '.join(map(repr, get_args(inner[0])))}"
    if origin in (list, tuple):
        several = _WORDS[inner[0]][1] if inner and inner[0] in _WORDS else "values"
        return f"{'a list of' if origin is list else len(inner)} {several}"
    if origin is dict or is_typeddict(origin):
        return "a mapping, such as {name: value}"
    return "a function" if origin is Callable else _WORDS[origin][0] if origin in _WORDS else f"a {origin.__name__}"


def _classes(kind: Any) -> tuple[type, ...]:
    """Return the classes whose instances may be of a type."""
    origin = get_origin(kind) or kind
    if origin is Literal:
        return tuple({type(choice) for choice in get_args(kind)})
    if origin in (list, tuple):
        return (list, tuple)
    if origin is float:
        return (float, int)
    return (dict,) if is_typeddict(origin) else (origin,)


def _check_contents(name: str, values: list[Any], kind: Any) -> None:
    """Check the items and fields of values that have the class of a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        if wrong := [value for value in values if value not in inner]:
            raise ValueError(f"{name} must be {in_words(kind)}; got {wrong[0]!r}")
    elif origin is dict:
        check_types(f"{name}, a key,", list(chain.from_iterable(values)), inner[0])
        check_types(name, list(chain.from_iterable(value.values() for value in values)), inner[1])
    elif origin in (list, set):
        check_types(name, list(chain.from_iterable(values)), inner[0])
    elif origin is tuple:
        if wrong := [value for value in values if len(value) != len(inner)]:
            raise ValueError(f"{name} must be {in_words(kind)}; got {len(wrong[0])}")
        for position, item in enumerate(inner):
            check_types(name, [value[position] for value in values], item)
    elif is_typeddict(kind):
        for field, declared in get_type_hints(kind, include_extras=True).items():
            optional = get_origin(declared) is NotRequired
            if not optional and not all(field in value for value in values):
                raise ValueError(f"{name} lacks {field!r}")
            declared = get_args(declared)[0] if optional else declared
            check_types(f"{name}.{field}", [value[field] for value in values if field in value], declared)
    elif is_dataclass(kind) or hasattr(kind, "_fields"):
        for field, declared in get_type_hints(kind).items():
            check_types(f"{name}.{field}", [getattr(value, field) for value in values], declared)
