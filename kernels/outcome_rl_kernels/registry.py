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
    is_same = _identity(registry.get(name, entry)) == _identity(entry)
    if not name.isidentifier() or name in taken or not is_same:
        raise ValueError(f"{setting} {name!r} must be a new name of letters, digits and underscores; choose another")
    registry[name] = entry
    return entry


def _identity(entry: object) -> object:
    """Return what two definitions of a function share."""
    function = getattr(entry, "function", entry)
    return getattr(function, "__module__", None), getattr(function, "__qualname__", id(function))
