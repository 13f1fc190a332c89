"""The questions sampled so far: whether each was ever solved, and how many different answers it got."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple


class QuestionHistory(NamedTuple):
    """Everything sampled for a question so far."""

    visits: int  # samples
    successes: int  # correct samples
    distinct: int  # different answers


@dataclass
class Question:
    """State of a question over all batches."""

    solved: bool = False  # whether a correct response was ever sampled
    answers: int = 0  # different answers so far; "no answer" is none


class Questions:
    """Question id -> its state, with the sums that the metrics of every step read."""

    def __init__(self) -> None:
        self._of: dict[str, Question] = {}
        self._solved = self._answers = self._answers_solved = 0  # sums over all questions, and over solved ones

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def is_solved(self, question_id: str) -> bool:
        """Return whether a correct response was ever sampled; False for a question never sampled."""
        question = self._of.get(question_id)
        return question is not None and question.solved

    @property
    def solved(self) -> Mapping[str, bool]:
        """A read-only copy: question id -> whether a correct response was ever sampled."""
        return MappingProxyType({question_id: question.solved for question_id, question in self._of.items()})

    def add(self, rows: Iterable[tuple[str, bool]]) -> None:
        """Add sampled responses, as pairs of a question's id and whether the response is correct."""
        for question_id, correct in rows:
            question = self._of.get(question_id)
            if question is None:
                question = self._of[question_id] = Question()
            if correct and not question.solved:
                question.solved = True
                self._solved += 1
                self._answers_solved += question.answers

    def add_answers(self, number_of: Mapping[str, int]) -> None:
        """Add new answers, by question id -> their number; call `add` for these questions first."""
        for question_id, number in number_of.items():
            question = self._of[question_id]
            question.answers += number
            self._answers += number
            self._answers_solved += number * question.solved

    def snapshot(self, question_ids: Iterable[str]) -> Any:
        """Return the state of some questions for `restore`."""
        known = {question_id: self._of.get(question_id) for question_id in question_ids}
        states = {question_id: one and replace(one) for question_id, one in known.items()}
        return states, (self._solved, self._answers, self._answers_solved)

    def restore(self, snapshot: Any) -> None:
        """Undo all changes to these questions since a snapshot."""
        states, (self._solved, self._answers, self._answers_solved) = snapshot
        for question_id, state in states.items():
            if state is None:
                self._of.pop(question_id, None)
            else:
                self._of[question_id] = state

    def metrics(self, *, judged: bool) -> dict[str, float]:
        """Return metrics of everything sampled so far; `judged` says whether correctness is known."""
        total, unsolved = len(self._of), len(self._of) - self._solved
        metrics = {"exploration/distinct_answers": self._answers / total}
        if judged:
            metrics["exploration/solved_fraction"] = self._solved / total
            if unsolved:
                metrics["exploration/distinct_answers_unsolved"] = (self._answers - self._answers_solved) / unsolved
        return metrics
