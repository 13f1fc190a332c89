"""Kinds of outcomes: the base class that the `Explorer` relies on, and the kinds that have a name.

A kind reads outcomes from a `Batch`, and remembers the outcomes of each question. `outcome="math"` is a name of this
module, and "module:Class" imports another kind, which needs no registration:

    class Length(OutcomeKind):
        rule = "length/1"

        def classify(self, batch, **limits): ...   # -> Outcomes
"""

import logging
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NotRequired, Self, TypedDict

import numpy as np
from numpy.typing import NDArray

from outcome_rl.declared import check_types
from outcome_rl.outcomes.batch import Batch, Row
from outcome_rl.outcomes.comparisons import Progress
from outcome_rl.outcomes.extraction.answer import Answer
from outcome_rl.outcomes.fork_locks import lock_of

logger = logging.getLogger(__name__)

NAMED = {
    "math": "outcome_rl.outcomes.matcher:OutcomeMatcher",
    "given": "outcome_rl.outcomes.function_matcher:GivenMatcher",
}
"""Names of kinds, and the classes that they stand for."""


class Outcomes(NamedTuple):
    """Outcomes of N responses.

    - `keys` (N,) int64: the outcome class of each response; `NO_ANSWER` = 0 without an answer.
    - `correct` (N,) bool: whether that class is the class of the question's gold answer.
    - `answers`, N entries: the extracted answers with their spans; None without an answer.
    - `unresolved`: number of comparisons in this call that failed, timed out or were not started in time, which are
      logged and count as "different"; for an outcome function, the number of responses on which it failed.
    """

    keys: NDArray[np.int64]
    correct: NDArray[np.bool_]
    answers: list[Answer | None]
    unresolved: int


class OutcomeKind(ABC):
    """A way to read outcomes from responses, which remembers the outcomes of each question.

    A subclass needs `rule` and `classify`. To list and save outcomes, it keeps the state of each question in
    `_questions`; a class without state leaves that empty.

    Args:
        rule: as the attribute; None takes the class's.
        question_type: class of the states of questions, with `texts()`, `state()`, `from_state(question_id, state)`,
            and with `snapshot()` and `restore(snapshot)`, which take back changes.

    Attributes:
        rule: name and version of the mapping from responses to keys; counts made under another rule cannot be mixed
            with these. Empty: it has no name, so that its counts cannot be saved.
        needs_gold: whether correctness comes from gold answers, so that every question needs one.
        needs_row: whether it reads more than the final answer: the data row, and all turns of an agent.
        needs_keys: whether it reads `Batch.outcome_keys` in place of the responses.
        gives_spans: whether every answer has a span, so that the answer mask covers it.
        reads_answers: whether `classify_answers` takes final answers that were extracted before, and not whole texts.
        bad_golds: question id -> reason why its gold answer is unusable.
        doubtful_golds: question id -> reason to check its gold answer, which is used.
    """

    rule: str = ""
    needs_gold = needs_row = needs_keys = gives_spans = reads_answers = False

    def __init__(self, rule: str | None = None, question_type: Any = None) -> None:
        if rule is not None:
            self.rule = rule
        self.bad_golds: dict[str, str] = {}
        self.doubtful_golds: dict[str, str] = {}
        self._question_type = question_type
        self._questions: dict[str, Any] = {}
        self._lock = lock_of(self, threading.RLock)
        self._guarded = False

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        """Return a new kind with the settings of an `ExplorationConfig`."""
        return cls()

    @abstractmethod
    def classify(self, batch: Batch, *, progress: Progress | None = None, limit_s: float | None = None) -> Outcomes:
        """Classify N responses; `limit_s` bounds the seconds that slow comparisons or calls take together."""

    def classify_answers(
        self,
        question_ids: Sequence[str],
        answers: Sequence[str | None],
        golds: Sequence[str] | None,
        rows: Sequence[Row] | None = None,
        *,
        progress: Progress | None = None,
    ) -> Outcomes:
        """Classify what `extract` returned for N responses; None is an empty text."""
        batch = Batch.of(question_ids, [text or "" for text in answers], golds, rows=rows)
        return self.classify(batch, progress=progress)

    def extract(self, response: str) -> str | None:
        """Return the part of a response that `classify_answers` needs, by default all of it; None is no answer."""
        return response

    @contextmanager
    def unless_refused(self, question_ids: Iterable[str]) -> Iterator[None]:
        """Undo all changes to these questions if the body raises; the lock is held meanwhile."""
        with self._lock:
            if self._guarded:  # by a caller, which takes back what this call changes
                yield
                return
            known = {id_: self._questions.get(id_) for id_ in dict.fromkeys(question_ids)}
            before = [(id_, one, one and one.snapshot()) for id_, one in known.items()]
            reported = self.bad_golds, self.doubtful_golds
            reasons = [{id_: one[id_] for id_ in known if id_ in one} for one in reported]
            try:
                self._guarded = True
                yield
            except BaseException:
                for id_, question, snapshot in before:
                    if question is None:
                        self._questions.pop(id_, None)
                    else:
                        question.restore(snapshot)
                for now, then in zip(reported, reasons, strict=True):
                    for id_ in known:
                        now.pop(id_, None)
                    now.update(then)
                raise
            finally:
                self._guarded = False

    def forget(self, question_ids: Iterable[str]) -> None:
        """Drop the outcomes of some questions; a later call treats them as new, but reports no gold answer twice.

        Use it after evaluations, whose outcomes must neither affect the next evaluation nor fill checkpoints.
        """
        with self._lock:
            for question_id in question_ids:
                self._questions.pop(question_id, None)

    def representatives(self, question_id: str) -> dict[int, str]:
        """Return one text of each outcome of a question by its key; an `OutcomeMatcher` includes the gold's."""
        with self._lock:
            question = self._questions.get(question_id)
            return {} if question is None else question.texts()

    def state_dict(self) -> dict[str, Any]:
        """Return the state needed to continue with the same outcomes, as values that JSON can hold."""
        with self._lock:
            questions = {question_id: question.state() for question_id, question in self._questions.items()}
            golds = {
                name: {question_id: why for question_id, why in reasons.items() if question_id in questions}
                for name, reasons in (("bad_golds", self.bad_golds), ("doubtful_golds", self.doubtful_golds))
            }
            return {"rule": self.rule, "questions": questions, **golds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the outcomes of this kind with saved ones.

        Raises:
            ValueError: they were made under another rule, because their keys would not match new keys, or are damaged.
        """
        if state.get("rule") != self.rule:
            raise ValueError(
                f"state must have the outcome rule {self.rule!r} of this matcher; got {state.get('rule')!r}. Use the "
                "equivalence or outcome function, and the version, that the state was made with, or start without it."
            )
        try:
            check_types("it", [state], _State)
            questions = {
                question_id: self._question_type.from_state(question_id, saved)
                for question_id, saved in state["questions"].items()
            }
            check_types("a question", questions.values(), self._question_type)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            why = error if type(error) is ValueError else repr(error)
            raise ValueError(
                f"the state of the outcomes is damaged: {why}. Continue from another state, or start without it"
            ) from error
        bad_golds, doubtful_golds = dict(state["bad_golds"]), dict(state.get("doubtful_golds", {}))
        with self._lock:
            self._questions, self.bad_golds, self.doubtful_golds = questions, bad_golds, doubtful_golds

    def close(self) -> None:  # noqa: B027 - most kinds have no processes
        """Stop the processes, if there are any; outcomes are kept, and a later call starts new processes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _report_gold(self, question_id: str, bad: str = "", doubt: str = "") -> None:
        """Note why a gold answer is unusable or doubtful, and say so unless it was said before `forget`."""
        known = self.bad_golds.pop(question_id, ""), self.doubtful_golds.pop(question_id, "")
        if bad:
            self.bad_golds[question_id] = bad
            if bad != known[0]:
                message = f"question {question_id!r}: {bad}; no response to it will count as correct."
                warnings.warn(message, stacklevel=2)
        if doubt:
            self.doubtful_golds[question_id] = doubt
            if doubt != known[1]:
                logger.warning("question %r: %s.", question_id, doubt)


class _State(TypedDict):
    """The state of a kind, in which each kind saves its questions in its own way."""

    questions: dict[str, Any]
    bad_golds: dict[str, str]
    doubtful_golds: NotRequired[dict[str, str]]


def golds_differ(question_id: str, before: str, gold: str) -> ValueError:
    """Return the error for a question whose gold answer differs from an earlier one."""
    return ValueError(
        f"golds must agree for a question: question {question_id!r} had the gold answer {before!r} before; got "
        f"{gold!r}. Give different questions different ids, or fix the data."
    )
