"""The C++ count table (csrc/count_table.h) behind the interface of `CountTable`."""

import ctypes
import weakref

import torch
from torch import Tensor

from outcome_rl_kernels.backends import native_library
from outcome_rl_kernels.counts.reference import CountEntries


class NativeTable:
    """A hash table in C++, on the CPU.

    Args:
        capacity: initial slots, rounded up to a power of two and to at least 8.

    Raises:
        RuntimeError: the native library is not available.
        MemoryError: there is no memory for so many slots; methods raise it where the table cannot grow, and it is then
            as it was.
    """

    def __init__(self, capacity: int) -> None:
        self._library = native_library()
        # A pointer object, unlike a number, refuses to be copied or pickled.
        self.handle = ctypes.c_void_p(self._library.count_table_create(max(capacity - 1, 7).bit_length()))
        if not self.handle:
            raise MemoryError(f"no memory for a count table of {capacity} slots of 32 bytes; lower capacity")
        weakref.finalize(self, self._library.count_table_destroy, self.handle)

    @property
    def slot_count(self) -> int:
        """Slots allocated now."""
        return int(self._library.count_table_slot_count(self.handle))

    def observe(self, question_keys: Tensor, outcome_keys: Tensor) -> Tensor:
        before = torch.empty_like(outcome_keys)
        self._check(self._library.count_table_observe(self.handle, *_arguments(question_keys, outcome_keys, before)))
        return before

    def lookup(self, question_keys: Tensor, outcome_keys: Tensor) -> Tensor:
        counts = torch.empty_like(outcome_keys)
        self._library.count_table_lookup(self.handle, *_arguments(question_keys, outcome_keys, counts))
        return counts

    def add(self, entries: CountEntries) -> None:
        self._check(self._library.count_table_add(self.handle, *_arguments(*entries)))

    def entries(self) -> CountEntries:
        entries = CountEntries(*torch.empty(len(CountEntries._fields), len(self), dtype=torch.int64))
        self._library.count_table_entries(self.handle, *(column.data_ptr() for column in entries))
        return entries

    def total(self) -> int:
        return int(self._library.count_table_total(self.handle))

    def __len__(self) -> int:
        return int(self._library.count_table_size(self.handle))

    def _check(self, done: bool) -> None:
        if not done:
            raise MemoryError(f"no memory to grow the count table of {self.slot_count} slots; its counts are unchanged")


def _arguments(question_keys: Tensor, outcome_keys: Tensor, counts: Tensor) -> tuple[int, ...]:
    """Return the addresses of the three, and how many outcomes and how many questions there are."""
    pointers = question_keys.data_ptr(), outcome_keys.data_ptr(), counts.data_ptr()
    return *pointers, outcome_keys.numel(), question_keys.numel()
