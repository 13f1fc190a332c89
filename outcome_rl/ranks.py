"""Results of all ranks of a process group, in their order."""

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

T = TypeVar("T")


def gathered(call: Callable[[], T], group: dist.ProcessGroup | None) -> list[T]:
    """Call a function on every rank and return all results in order of rank; an exception on one is raised on all.

    A function rather than its result, so that no rank waits for one that failed.
    """
    if group is None:
        return [call()]
    results: list[Any] = [None] * dist.get_world_size(group)
    try:
        own = call()
    except Exception as error:
        dist.all_gather_object(results, portable(error), group=group)
        raise
    dist.all_gather_object(results, own, group=group)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def portable(error: Exception) -> Exception:
    """Return an exception that another process can unpickle: some cannot be made from only their text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever an exception does when it is copied
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
