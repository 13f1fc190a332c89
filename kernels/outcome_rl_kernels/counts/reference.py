"""The interface of the tables behind `OutcomeCounts`, and the reference: Python dictionaries.

A table maps (question, outcome), two int64 of any value, to how often that pair was seen. Arguments were checked by
`OutcomeCounts`: contiguous int64 tensors, each question with equally many outcomes, one after another; counts
positive, no sum beyond int64.
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
        """Return the count of each outcome before the call, in its shape; then add one for every outcome."""

    def lookup(self, question_keys: Tensor, outcome_keys: Tensor) -> Tensor:
        """Return counts, 0 where a pair was never seen."""

    def add(self, entries: CountEntries) -> None:
        """Add counts."""

    def entries(self) -> CountEntries:
        """Return every pair and its count, in any order."""

    def total(self) -> int:
        """Return the sum of all counts."""

    def __len__(self) -> int:
        """Return the number of pairs."""


class DictTable:
    """The reference: Python dictionaries."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], int] = {}

    def observe(self, question_keys: Tensor, outcome_keys: Tensor) -> Tensor:
        before = self.lookup(question_keys, outcome_keys)
        for pair in _pairs(question_keys, outcome_keys):
            self._counts[pair] = self._counts.get(pair, 0) + 1
        return before

    def lookup(self, question_keys: Tensor, outcome_keys: Tensor) -> Tensor:
        counts = [self._counts.get(pair, 0) for pair in _pairs(question_keys, outcome_keys)]
        return torch.tensor(counts, dtype=torch.int64).reshape(outcome_keys.shape)

    def add(self, entries: CountEntries) -> None:
        for question, outcome, count in zip(*(column.tolist() for column in entries), strict=True):
            self._counts[question, outcome] = self._counts.get((question, outcome), 0) + count

    def entries(self) -> CountEntries:
        rows = [(*pair, count) for pair, count in self._counts.items()]
        return CountEntries(*torch.tensor(rows, dtype=torch.int64).reshape(-1, 3).t().contiguous())

    def total(self) -> int:
        return sum(self._counts.values())

    def __len__(self) -> int:
        return len(self._counts)


def _pairs(question_keys: Tensor, outcome_keys: Tensor) -> list[tuple[int, int]]:
    outcomes = outcome_keys.flatten().tolist()
    samples = len(outcomes) // max(question_keys.numel(), 1)
    questions = question_keys.flatten().repeat_interleave(samples).tolist()
    return list(zip(questions, outcomes, strict=True))
