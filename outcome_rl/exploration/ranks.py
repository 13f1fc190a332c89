"""One result for all ranks of a process group."""

import pickle
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, TypeVar

import torch.distributed as dist

T = TypeVar("T")


def from_rank_zero(call: Callable[[], T], inputs: object, group: dist.ProcessGroup) -> T:
    """Run a call on rank zero and broadcast its result, or re-raise its exception on every rank.

    Raises:
        ValueError: the ranks have different inputs.
    """
    digests: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(digests, blake2b(repr(inputs).encode("utf-8", "surrogatepass")).hexdigest(), group=group)
    if len(set(digests)) > 1:
        raise ValueError(
            "all ranks of the process group must score the same responses, but they have different ones; gather "
            "the questions, responses, golds and rewards of all ranks first, by all_gather_object"
        )
    found: list[Any] = [None]
    failure: Exception | None = None
    if dist.get_rank(group) == 0:
        try:
            found = [call()]
        except Exception as error:  # noqa: BLE001 - the other ranks wait for a broadcast
            failure = error
            found = [portable(error)]
    dist.broadcast_object_list(found, src=dist.get_global_rank(group, 0), group=group)
    if isinstance(found[0], Exception):
        raise failure or found[0]
    result: T = found[0]
    return result


def portable(error: Exception) -> Exception:
    """Return an exception that another process can unpickle: some cannot be made from only their text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever an exception does when it is copied
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
