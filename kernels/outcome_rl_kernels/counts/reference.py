"""The interface of the tables behind `OutcomeCounts`, and the reference: Python dictionaries.

A table maps (question, outcome), two int64 of any value, to how often that pair was seen and how often it was correct,
and each question to the sums over its outcomes. `OutcomeCounts` has checked the arguments: tensors are
contiguous, each question has equally many outcomes, one after another, counts are positive, and no sum exceeds int64.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol, Self

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

    @classmethod
    def empty(cls, question_keys: Tensor, outcome_keys: Tensor) -> Self:
        """Return one whose values are not set yet."""
        return cls(torch.empty_like(outcome_keys), outcome_keys.new_empty(3, *question_keys.shape))


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
    """The reference: Python dictionaries.

    A call changes the table in one step, which neither an error nor Ctrl-C can divide.
    """

    def __init__(self) -> None:
        self._of: dict[int, dict[int, tuple[int, int]]] = {}  # question -> outcome -> count, successes

    def observe(self, question_keys: Tensor, outcome_keys: Tensor, correct: Tensor | None) -> Past:
        past = self.lookup(question_keys, outcome_keys)
        right = torch.zeros_like(outcome_keys) if correct is None else correct.long()
        pairs = _pairs(question_keys, outcome_keys)
        self._add((*pair, 1, success) for pair, success in zip(pairs, right.flatten().tolist(), strict=True))
        return past

    def lookup(self, question_keys: Tensor, outcome_keys: Tensor) -> Past:
        counts = [self._of.get(q, {}).get(o, (0, 0))[0] for q, o in _pairs(question_keys, outcome_keys)]
        history = []
        for question in question_keys.flatten().tolist():
            numbers = self._of.get(question, {})
            answers = len(numbers.keys() - {NO_ANSWER})
            history.append([*(sum(column) for column in zip((0, 0), *numbers.values(), strict=True)), answers])
        return Past(
            torch.tensor(counts, dtype=torch.int64, device="cpu").reshape(outcome_keys.shape),
            torch.tensor(history, dtype=torch.int64, device="cpu")
            .reshape(-1, 3)
            .t()
            .reshape(3, *question_keys.shape)
            .contiguous(),
        )

    def add(self, entries: CountEntries) -> None:
        self._add(zip(*(column.tolist() for column in entries), strict=True))

    def entries(self) -> CountEntries:
        rows = [(q, o, *numbers) for q, outcomes in self._of.items() for o, numbers in outcomes.items()]
        return CountEntries(*torch.tensor(rows, dtype=torch.int64, device="cpu").reshape(-1, 4).t().contiguous())

    def total(self) -> int:
        return sum(count for outcomes in self._of.values() for count, _ in outcomes.values())

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def _add(self, rows: Iterable[tuple[int, int, int, int]]) -> None:
        changed: dict[int, dict[int, tuple[int, int]]] = {}
        for question, outcome, count, successes in rows:
            if question not in changed:
                changed[question] = dict(self._of.get(question, {}))
            before = changed[question].get(outcome, (0, 0))
            changed[question][outcome] = before[0] + count, before[1] + successes
        self._of.update(changed)


def _pairs(question_keys: Tensor, outcome_keys: Tensor) -> list[tuple[int, int]]:
    outcomes = outcome_keys.flatten().tolist()
    samples = len(outcomes) // max(question_keys.numel(), 1)
    questions = question_keys.flatten().repeat_interleave(samples).tolist()
    return list(zip(questions, outcomes, strict=True))
