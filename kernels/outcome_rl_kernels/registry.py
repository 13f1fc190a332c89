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
    # Callable objects have no `__qualname__`: compare the objects themselves.
    same = all(getattr(known, field, known) == getattr(new, field, new) for field in ("__module__", "__qualname__"))
    same = same and _enclosed(known) == _enclosed(new)
    if not name.isidentifier() or name in taken or not same:
        raise ValueError(f"{setting} {name!r} must be a new name of letters, digits and underscores; choose another")
    registry[name] = entry
    return entry


def _enclosed(function: object) -> list[object]:
    """Return the variables of a closure: two functions that one function made differ in nothing else."""
    return [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
