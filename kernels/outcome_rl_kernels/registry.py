"""Names that users give to their own bonuses, advantage estimators and token losses."""

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

    A second definition of the same function replaces the first, as in a notebook. `setting` is the one whose values
    these names are.

    Raises:
        ValueError: the name is that of another function, is taken, or is not a name.
    """
    known, new = (getattr(each, "function", each) for each in (registry.get(name, entry), entry))
    # Objects that are called have no name of their own.
    same = all(getattr(known, field, known) == getattr(new, field, new) for field in ("__module__", "__qualname__"))
    if not name.isidentifier() or name in taken or not same:
        raise ValueError(f"{setting} {name!r} must be a new name of letters, digits and underscores; choose another")
    registry[name] = entry
    return entry
