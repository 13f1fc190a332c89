"""Names of user-defined bonuses, advantage estimators and token losses."""

from collections.abc import Collection
from typing import TypeVar

Entry = TypeVar("Entry")


def add_by_name(
    registry: dict[str, Entry],
    setting: str,
    name: str,
    entry: Entry,
    *,
    taken: Collection[str] = (),
) -> Entry:
    """Register a function, or an object that holds one as `function`, under a new name that is not in `taken`.

    A second definition of the same function replaces the first, as in a notebook. The names are values of `setting`.

    Raises:
        ValueError: another function has the name, the name is taken, or it is not an identifier.
    """
    known, new = (getattr(each, "function", each) for each in (registry.get(name, entry), entry))
    is_same = _identity(known) == _identity(new) and _enclosed(known) == _enclosed(new)
    if not name.isidentifier() or name in taken or not is_same:
        raise ValueError(f"{setting} {name!r} must be a new name of letters, digits and underscores; choose another")
    registry[name] = entry
    return entry


def _identity(value: object) -> object:
    """Return what two definitions of a function share; arrays, which `==` compares by element, are told by object."""
    value = getattr(value, "function", value)
    if hasattr(value, "__qualname__"):
        return value.__module__, value.__qualname__
    return id(value) if hasattr(value, "shape") else value


def _enclosed(function: object) -> list[object]:
    """Return the variables of a closure: two functions that one function made differ in nothing else."""
    return [_identity(cell.cell_contents) for cell in getattr(function, "__closure__", None) or ()]
