"""Counted pairs as columns: their order, and a digest that adds up."""

import ctypes
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from outcome_rl_kernels.native import native_library, native_status

GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)  # the increment of SplitMix64


class CountEntries(NamedTuple):
    """Counted pairs as three int64 tensors of one length, sorted by (question key, outcome key) as signed numbers."""

    question_keys: Tensor
    outcome_keys: Tensor
    counts: Tensor


def sort_entries(entries: CountEntries) -> CountEntries:
    """The same entries in the order of their keys, on the device where they are.

    Raises:
        MemoryError: there is no memory for a copy.
    """
    if entries.counts.device.type == "cpu" and native_status()[0]:
        sorted_entries = CountEntries(*(column.clone() for column in entries))
        pointers = (column.data_ptr() for column in sorted_entries)
        if _native_sort()(*pointers, len(entries.counts)) != 0:
            raise MemoryError(f"no memory to sort {len(entries.counts)} counts")
        return sorted_entries
    by_outcome = entries.outcome_keys.argsort(stable=True)
    order = by_outcome[entries.question_keys[by_outcome].argsort(stable=True)]
    return CountEntries(*(column[order] for column in entries))


def digest(entries: CountEntries, start: int = 0) -> int:
    """`start + sum of mix(question, outcome) * count` modulo 2**64.

    The digest of a sum of counts is the sum of their digests, in any order: it is kept up to date from what is new,
    never computed over the table. Tables that differ agree by chance once in about 2**64.
    """
    questions, outcomes, counts = (column.cpu().numpy().view(np.uint64) for column in entries)
    # Added to the question, so that pair (0, 0) is not digested as 0.
    mixed = mix64(mix64(questions + GOLDEN_RATIO) + outcomes)
    return (start + int((mixed * counts).sum())) % 2**64


def mix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64, a bijection."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@cache
def _native_sort() -> "ctypes._NamedFuncPointer":
    """csrc/entry_sort.h, from the library once more, so that other threads run meanwhile: the columns are its own."""
    function = ctypes.CDLL(native_library()._name).sort_entries
    function.argtypes, function.restype = (*[ctypes.c_void_p] * 3, ctypes.c_int64), ctypes.c_int32
    return function
