"""The C++ count table (csrc/count_table.h) behind the interface of `CountTable`."""

import ctypes
import weakref

import torch
from torch import Tensor

from outcome_rl_kernels.backends import native_library
from outcome_rl_kernels.counts.reference import CountEntries, Past


class NativeTable:
    """A hash table in C++, on the CPU.

    Args:
        capacity: initial slots, rounded up to a power of two and to at least 8.

    Raises:
        RuntimeError: the native library is not available.
        MemoryError: there is not enough memory for the slots; methods raise it if the table cannot grow, and leave it
            unchanged.
    """

    def __init__(self, capacity: int) -> None:
        self._library = native_library()
        # Unlike a number, a pointer object cannot be copied or pickled.
        self.handle = ctypes.c_void_p(self._library.count_table_create(max(capacity - 1, 7).bit_length()))
        if not self.handle:
            raise MemoryError(f"no memory for a count table of {capacity} slots of 32 bytes; lower capacity")
        weakref.finalize(self, self._library.count_table_destroy, self.handle)

    @property
    def slot_count(self) -> int:
        """Slots allocated now."""
        return int(self._library.count_table_slot_count(self.handle))

    def observe(self, question_keys: Tensor, outcome_keys: Tensor, correct: Tensor | None) -> Past:
        past = Past.empty(question_keys, outcome_keys)
        done = self._library.count_table_observe(
            self.handle,
            question_keys.data_ptr(),
            outcome_keys.data_ptr(),
            None if correct is None else correct.data_ptr(),
            past.counts.data_ptr(),
            past.history.data_ptr(),
            outcome_keys.numel(),
            question_keys.numel(),
        )
        self._check(done)
        return past

    def lookup(self, question_keys: Tensor, outcome_keys: Tensor) -> Past:
        past = Past.empty(question_keys, outcome_keys)
        self._library.count_table_lookup(
            self.handle,
            question_keys.data_ptr(),
            outcome_keys.data_ptr(),
            past.counts.data_ptr(),
            past.history.data_ptr(),
            outcome_keys.numel(),
            question_keys.numel(),
        )
        return past

    def add(self, entries: CountEntries) -> None:
        pointers = (column.data_ptr() for column in entries)
        self._check(self._library.count_table_add(self.handle, *pointers, len(entries.counts)))

    def entries(self) -> CountEntries:
        entries = CountEntries(*torch.empty(len(CountEntries._fields), len(self), dtype=torch.int64, device="cpu"))
        self._library.count_table_entries(self.handle, *(column.data_ptr() for column in entries))
        return entries

    def total(self) -> int:
        return int(self._library.count_table_total(self.handle))

    def __len__(self) -> int:
        return int(self._library.count_table_size(self.handle))

    def _check(self, done: bool) -> None:
        if not done:
            raise MemoryError(f"no memory to grow the count table of {self.slot_count} slots; its counts are unchanged")
