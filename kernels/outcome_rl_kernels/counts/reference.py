"""The interface of the tables behind `OutcomeCounts`, and the reference: Python dictionaries.

A table maps (question, outcome), two int64 of any value, to how often that pair was seen, and remembers which part of
each count is `pending`: added since the last synchronisation between ranks. Arguments were checked by `OutcomeCounts`:
flat contiguous int64 tensors of one length, counts positive, no sum beyond int64.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class CountEntries(NamedTuple):
    """Counted pairs as three int64 tensors of one length."""

    question_keys: Tensor
    outcome_keys: Tensor
    counts: Tensor


class CountTable(Protocol):
    """A table of counts on some device."""

    def observe(self, question_keys: Tensor, outcome_keys: Tensor) -> Tensor:
        """Return the count of each row before the call; then add one for every row."""

    def lookup(self, question_keys: Tensor, outcome_keys: Tensor) -> Tensor:
        """Return counts, 0 where a pair was never seen."""

    def add(self, entries: CountEntries, *, pending: bool) -> None:
        """Add counts; `pending=False` excludes them from the next synchronisation."""

    def entries(self, *, pending: bool = False) -> CountEntries:
        """Return every pair and its count, or every pair with a pending part and that part, in any order."""

    def clear_pending(self) -> None:
        """Forget which parts are pending; the counts stay."""

    def total(self) -> int:
        """Return the sum of all counts."""

    def __len__(self) -> int:
        """Return the number of pairs."""


class DictTable:
    """The reference: Python dictionaries."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], int] = {}
        self._pending: dict[tuple[int, int], int] = {}

    def observe(self, question_keys: Tensor, outcome_keys: Tensor) -> Tensor:
        before = self.lookup(question_keys, outcome_keys)
        self.add(CountEntries(question_keys, outcome_keys, torch.ones_like(outcome_keys)), pending=True)
        return before

    def lookup(self, question_keys: Tensor, outcome_keys: Tensor) -> Tensor:
        pairs = zip(question_keys.tolist(), outcome_keys.tolist(), strict=True)
        return torch.tensor([self._counts.get(pair, 0) for pair in pairs], dtype=torch.int64)

    def add(self, entries: CountEntries, *, pending: bool) -> None:
        for question, outcome, count in zip(*(column.tolist() for column in entries), strict=True):
            pair = (question, outcome)
            self._counts[pair] = self._counts.get(pair, 0) + count
            if pending:
                self._pending[pair] = self._pending.get(pair, 0) + count

    def entries(self, *, pending: bool = False) -> CountEntries:
        counts = self._pending if pending else self._counts
        rows = [(*pair, count) for pair, count in counts.items()]
        return CountEntries(*torch.tensor(rows, dtype=torch.int64).reshape(-1, 3).t().contiguous())

    def clear_pending(self) -> None:
        self._pending.clear()

    def total(self) -> int:
        return sum(self._counts.values())

    def __len__(self) -> int:
        return len(self._counts)
