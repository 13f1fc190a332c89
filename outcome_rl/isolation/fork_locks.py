"""Locks that a forked child gets anew: the thread that held one at the fork does not exist there."""

import os
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
_MAKERS: "WeakKeyDictionary[Any, Callable[[], Any]]" = WeakKeyDictionary()


def lock_of(owner: Any, make: Callable[[], T]) -> T:
    """Return a lock for the attribute `_lock` of an object, which every child gets anew that is forked meanwhile."""
    _MAKERS[owner] = make
    return make()


def _renew() -> None:
    for owner, make in _MAKERS.items():
        owner._lock = make()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_renew)
