"""Kinds of outcomes: the base class that the `Explorer` relies on, and the kinds that have a name.

A kind is a rule and two pure functions. What it returns depends on nothing but its arguments, so that a response has
the same outcome in every step, on every rank and in every run:

    class Words(OutcomeKind):
        rule = "words/1"

        def outcome(self, response, row):            # a value, an `Outcome`, or None
            return len(response.split())

        def is_correct(self, outcome, gold, row):    # `outcome.value` is what `outcome` returned
            return outcome.value == int(gold)

`outcome="my_module:Words"` imports it, without registration. A kind that is slow overrides `classify` in their place,
which gets all responses of a step at once.
"""

import logging
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from outcome_rl.outcomes.batch import Batch, Row
from outcome_rl.outcomes.functions import Failure, found, shown
from outcome_rl.outcomes.keys import NO_ANSWER
from outcome_rl.outcomes.outcome import Outcome
from outcome_rl.user_functions import boolean

logger = logging.getLogger(__name__)

NAMED = {
    "math": "outcome_rl.outcomes.matcher:OutcomeMatcher",
    "given": "outcome_rl.outcomes.given:GivenMatcher",
}
"""Names of kinds, and the classes that they stand for."""

MAX_SAID = 1 << 16
Progress = Callable[[int, int], None]
Texts = Mapping[str, Mapping[int, str]]
"""Question id -> key of an outcome -> the text that it was first counted with, in that order."""


class Outcomes(NamedTuple):
    """Outcomes of N responses.

    - `keys` (N,) int64: the outcome of each response; `NO_ANSWER` = 0 without an answer.
    - `correct` (N,) bool.
    - `answers`, N entries: the answers with their spans; None without an answer.
    - `unresolved`: responses of which the outcome or the correctness could not be computed: a comparison or a function
      failed, ran out of time or was not started in time. They are not correct.
    - `bad_golds`: question id -> reason why its gold answer is unusable.
    - `doubtful_golds`: question id -> reason to check its gold answer, which is used.
    """

    keys: NDArray[np.int64]
    correct: NDArray[np.bool_]
    answers: list[Outcome | None]
    unresolved: int = 0
    bad_golds: Mapping[str, str] = {}
    doubtful_golds: Mapping[str, str] = {}


class OutcomeKind:
    """A rule from responses to outcomes, without any state but caches: `outcome` and `is_correct`, or `classify`.

    Attributes:
        rule: name and version of the mapping from responses to keys; counts made under another rule cannot be mixed
            with these. Empty: it has no name, so that its counts cannot be saved.
        needs_gold: whether correctness comes from gold answers, so that every question needs one.
        needs_row: whether it reads more than the final answer: the data row, and all turns of an agent.
        needs_keys: whether it reads `Batch.outcome_keys` in place of the responses.
        reads_answers: whether `classify_answers` takes final answers that were extracted before, and not whole texts.
    """

    rule: str = ""
    needs_gold = needs_row = needs_keys = reads_answers = False

    def __init__(self, rule: str | None = None) -> None:
        if rule is not None:
            self.rule = rule

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        """Return a new kind with the settings of an `ExplorationConfig`."""
        return cls()

    def outcome(self, response: str, row: Row) -> Any:
        """Return the outcome of a response, a value as of an outcome function or an `Outcome`; None is no answer."""
        raise NotImplementedError(f"{type(self).__name__} must define outcome and is_correct, or classify")

    def is_correct(self, outcome: Outcome, gold: str, row: Row) -> bool:
        """Return whether an outcome, which is never "no answer", is correct."""
        raise NotImplementedError(f"{type(self).__name__} must define outcome and is_correct, or classify")

    def classify(
        self,
        question_ids: Batch | Sequence[str],
        responses: Sequence[str] | None = None,
        golds: Sequence[str] | None = None,
        rows: Sequence[Row] | None = None,
        *,
        texts: Texts | None = None,
        progress: Progress | None = None,
        limit_s: float | None = None,
    ) -> Outcomes:
        """Read the outcomes of N responses, once for equal ones to a question, and decide which are correct.

        Args:
            question_ids, responses, golds, rows: columns of a `Batch`, or a `Batch` in place of the first; an empty
                gold is none, and a response without a gold is not correct.
            texts: the outcomes of earlier calls, for a kind that asks whether a new text equals one of these.
            progress: called as `progress(done, total)` during slow comparisons.
            limit_s: seconds that slow comparisons or calls may take together; a response whose comparison or call has
                not begun by then is not correct, and is in `unresolved`. None is no limit.

        Raises:
            TypeError, ValueError: as for `Batch`.
        """
        batch = Batch.of(question_ids, responses, golds, rows=rows)
        return self.report(self._classify(batch, texts or {}, progress, limit_s))

    def _classify(self, batch: Batch, texts: Texts, progress: Progress | None, limit_s: float | None) -> Outcomes:
        """Classify a batch, and log nothing about its golds."""
        golds = golds_of(batch)
        outcomes = self._outcomes(batch, golds, limit_s)
        rows = list(zip(batch.question_ids, batch.responses, golds, strict=True))
        correct: dict[tuple[str, str, str], bool] = {}
        for row, outcome, example in zip(rows, outcomes, batch.examples, strict=True):
            if isinstance(outcome, Failure) or outcome.key == NO_ANSWER:
                correct[row] = False
            elif row not in correct:
                correct[row] = self._is_correct(outcome, row[0], row[2], example)
        if progress is not None:
            progress(len(batch), len(batch))
        return Outcomes(
            np.array([outcome.key for outcome in outcomes], np.int64),
            np.array([correct[row] for row in rows], np.bool_),
            list(map(_shown, outcomes)),
            sum(isinstance(outcome, Failure) for outcome in outcomes),
            self._bad_golds(batch, golds),
        )

    def _outcomes(self, batch: Batch, golds: Sequence[str], limit_s: float | None) -> Sequence[Outcome | Failure]:
        """Return the outcome of each response, with its key."""
        pairs = list(zip(batch.question_ids, batch.responses, strict=True))
        outcome_of: dict[tuple[str, str], Outcome] = {}
        for pair, example in dict(zip(pairs, batch.examples, strict=True)).items():
            outcome = self.outcome(pair[1], example)
            is_whole = isinstance(outcome, Outcome) and outcome.key is not None
            outcome_of[pair] = outcome if is_whole else found(outcome, len(pair[1]))
        return [outcome_of[pair] for pair in pairs]

    def _is_correct(self, outcome: Outcome, question_id: str, gold: str, example: Row) -> bool:
        return bool(gold.strip()) and boolean("is_correct", self.is_correct(outcome, gold, example))

    def _bad_golds(self, batch: Batch, golds: Sequence[str]) -> dict[str, str]:
        """Return the questions whose gold answer is unusable, each with the reason."""
        return {} if batch.golds is None else empty_golds(batch)

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
        batch = Batch(question_ids, [text or "" for text in answers], golds, rows=rows)
        return self.classify(batch, progress=progress)

    def extract(self, response: str) -> str | None:
        """Return the part of a response that `classify_answers` needs, by default all of it; None is no answer."""
        return response

    def same_gold(self, a: str, b: str) -> bool:
        """Return whether two gold answers, neither of them empty, are the same."""
        return a == b

    def text_of_gold(self, gold: str) -> tuple[int, str] | None:
        """Return the key of a gold's outcome and the text that stands for it in lists; None: a response's does."""
        return None

    def reads(self, rule: str) -> bool:
        """Return whether `key_of` has a key of this rule for every outcome that was counted under another one."""
        return rule == self.rule

    def key_of(self, key: int, text: str) -> int:
        """Return the key, under this rule, of an outcome of an older one, from its key there and its text."""
        return key

    def close(self) -> None:
        """Stop the processes, if there are any; a later call starts new ones."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def report(self, outcomes: Outcomes) -> Outcomes:
        """Say why golds are unusable or doubtful, each of them once; return the outcomes."""
        said: dict[tuple[str, str], None] = self.__dict__.setdefault("_said", {})
        for golds, say in ((outcomes.bad_golds, _warn), (outcomes.doubtful_golds, logger.warning)):
            for one in golds.items():
                if one not in said:
                    said[one] = None
                    say("question %r: %s.", *one)
        while len(said) > MAX_SAID:
            said.pop(next(iter(said)), None)
        return outcomes


def _warn(text: str, question_id: str, why: str) -> None:
    warnings.warn(f"{text.rstrip('.') % (question_id, why)}; no response to it will count as correct.", stacklevel=4)


def _shown(outcome: Outcome | Failure) -> Outcome | None:
    """Return an outcome with a value for people; None for no answer."""
    if outcome.key == NO_ANSWER:
        return None
    return Outcome(f"({outcome.kind})") if isinstance(outcome, Failure) else outcome._replace(value=shown(outcome.text))


def empty_golds(batch: Batch) -> dict[str, str]:
    """Return the questions of a batch that have no gold answer in any row, each with that as the reason."""
    golds = zip(batch.question_ids, batch.golds or (), strict=False)
    given = {question_id for question_id, gold in golds if gold.strip()}
    return dict.fromkeys((id_ for id_ in batch.question_ids if id_ not in given), "the gold answer '' is empty")


def golds_of(batch: Batch) -> list[str]:
    """Return the gold of each response, empty for none; one that any row of a question has holds for all of them."""
    golds = [""] * len(batch) if batch.golds is None else batch.golds
    known = {question_id: gold for question_id, gold in zip(batch.question_ids, golds, strict=True) if gold.strip()}
    return [
        gold if gold.strip() else known.get(question_id, "")
        for question_id, gold in zip(batch.question_ids, golds, strict=True)
    ]


def until(limit_s: float | None) -> float:
    """Return the time at which a limit is over, by `time.monotonic()`."""
    return time.monotonic() + (float("inf") if limit_s is None else limit_s)


def golds_differ(question_id: str, before: str, gold: str) -> ValueError:
    """Return the error for a question whose gold answer differs from an earlier one."""
    return ValueError(
        f"golds must agree for a question: question {question_id!r} had the gold answer {before!r} before; got "
        f"{gold!r}. Give different questions different ids, or fix the data."
    )
