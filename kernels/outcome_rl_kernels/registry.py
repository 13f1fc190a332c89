"""Names that users give to their own bonuses, advantage estimators and token losses."""

from collections.abc import Callable, Collection
from typing import TypeVar

Entry = TypeVar("Entry")


def add_by_name(
    registry: dict[str, Entry],
    setting: str,
    name: str,
    entry: Entry,
    *,
    taken: Collection[str] = (),
    function_of: Callable[[Entry], object] = lambda entry: entry,
) -> Entry:
    """Enter `entry` under a new name; a second definition of the same function replaces the first, as in a notebook.

    Args:
        registry: name to entry.
        setting: the setting whose values these names are, for the error.
        name: letters, digits and underscores.
        entry: a function, or what holds one.
        taken: names that nothing replaces.
        function_of: from an entry to its function.

    Raises:
        ValueError: the name is that of another function, is taken, or is not a name.
    """
    known, new = (function_of(each) for each in (registry.get(name, entry), entry))
    same = all(getattr(known, field) == getattr(new, field) for field in ("__module__", "__qualname__"))
    if not name.isidentifier() or name in taken or not same:
        raise ValueError(f"{setting} {name!r} must be a new name of letters, digits and underscores; choose another")
    registry[name] = entry
    return entry
