"""The interface of the tables behind `OutcomeCounts`, and the reference: Python dictionaries.

A table maps (question, outcome), two int64 of any value, to how often that pair was seen and how often it was correct,
and each question to the sums over its outcomes. `OutcomeCounts` has checked the arguments: tensors are
contiguous, each question has equally many outcomes, one after another, counts are positive, and no sum exceeds int64.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

NO_ANSWER = 0  # reserved outcome key: a sample without an answer; it does not count as a different answer


class CountEntries(NamedTuple):
    """Counted pairs as int64 tensors of one length."""

    question_keys: Tensor
    outcome_keys: Tensor
    counts: Tensor
    successes: Tensor  # correct samples among the counts


class Past(NamedTuple):
    """Samples that a table had counted before a call, as int64 tensors."""

    counts: Tensor  # of each outcome, in the shape of `outcome_keys`
    history: Tensor  # (3, ...) of each question, in the shape of `question_keys`: samples, correct samples, answers


class CountTable(Protocol):
    """A table of counts on some device."""

    def observe(self, question_keys: Tensor, outcome_keys: Tensor, correct: Tensor | None) -> Past:
        """Return the counts before the call, then count every outcome once; `correct` None: none is correct."""

    def lookup(self, question_keys: Tensor, outcome_keys: Tensor) -> Past:
        """Return the counts, 0 for pairs and questions that were never seen."""

    def add(self, entries: CountEntries) -> None:
        """Add counts."""

    def entries(self) -> CountEntries:
        """Return every pair, in any order."""

    def total(self) -> int:
        """Return the sum of all counts."""

    def __len__(self) -> int:
        """Return the number of pairs."""


class DictTable:
    """The reference: Python dictionaries."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int], list[int]] = {}  # count, successes
        self._questions: dict[int, list[int]] = {}  # samples, correct samples, different answers

    def observe(self, question_keys: Tensor, outcome_keys: Tensor, correct: Tensor | None) -> Past:
        past = self.lookup(question_keys, outcome_keys)
        right = torch.zeros_like(outcome_keys) if correct is None else correct
        for (question, outcome), success in zip(_pairs(question_keys, outcome_keys), right.flatten(), strict=True):
            self._count(question, outcome, 1, int(success))
        return past

    def lookup(self, question_keys: Tensor, outcome_keys: Tensor) -> Past:
        counts = [self._pairs.get(pair, [0])[0] for pair in _pairs(question_keys, outcome_keys)]
        history = [self._questions.get(question, [0, 0, 0]) for question in question_keys.flatten().tolist()]
        return Past(
            torch.tensor(counts, dtype=torch.int64).reshape(outcome_keys.shape),
            torch.tensor(history, dtype=torch.int64).reshape(-1, 3).t().reshape(3, *question_keys.shape).contiguous(),
        )

    def add(self, entries: CountEntries) -> None:
        for row in zip(*(column.tolist() for column in entries), strict=True):
            self._count(*row)

    def entries(self) -> CountEntries:
        rows = [(*pair, *numbers) for pair, numbers in self._pairs.items()]
        return CountEntries(*torch.tensor(rows, dtype=torch.int64).reshape(-1, 4).t().contiguous())

    def total(self) -> int:
        return sum(count for count, _ in self._pairs.values())

    def __len__(self) -> int:
        return len(self._pairs)

    def _count(self, question: int, outcome: int, count: int, successes: int) -> None:
        of_question = self._questions.setdefault(question, [0, 0, 0])
        if (question, outcome) not in self._pairs:
            of_question[2] += outcome != NO_ANSWER
        of_pair = self._pairs.setdefault((question, outcome), [0, 0])
        for numbers in (of_pair, of_question):
            numbers[0] += count
            numbers[1] += successes


def _pairs(question_keys: Tensor, outcome_keys: Tensor) -> list[tuple[int, int]]:
    outcomes = outcome_keys.flatten().tolist()
    samples = len(outcomes) // max(question_keys.numel(), 1)
    questions = question_keys.flatten().repeat_interleave(samples).tolist()
    return list(zip(questions, outcomes, strict=True))
