"""Classification of responses by an outcome function: equal values are one outcome of a question.

It has the methods of `OutcomeMatcher`, which compares the final answers of mathematics.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from outcome_rl.outcomes.batch import Batch, Row
from outcome_rl.outcomes.comparisons import Progress
from outcome_rl.outcomes.extraction.answer import Answer
from outcome_rl.outcomes.functions import (
    Failure,
    Found,
    OutcomeFunction,
    boolean,
    check_callable,
    identity,
    load_function,
    not_ending_the_process,
    value_of,
    wrapped,
)
from outcome_rl.outcomes.keys import NO_ANSWER, hash_key
from outcome_rl.outcomes.kinds import OutcomeKind, Outcomes, golds_differ

logger = logging.getLogger(__name__)

MAX_SHOWN_CHARS = 240
MAX_LOGGED_FAILURES = 5  # of one call


@dataclass
class _Question:
    """The gold answer of a question, and a text of every outcome seen so far."""

    gold: str | None = None
    gold_key: int = NO_ANSWER
    shown: dict[int, str] = field(default_factory=dict)  # key -> text for people

    def snapshot(self) -> Any:
        return self.gold, self.gold_key, len(self.shown)

    def restore(self, snapshot: Any) -> None:
        self.gold, self.gold_key, number = snapshot
        while len(self.shown) > number:
            self.shown.popitem()  # the outcomes that were added last

    def texts(self) -> dict[int, str]:
        return dict(self.shown)

    def state(self) -> list[Any]:
        return [self.gold, self.gold_key, [*self.shown.items()]]

    @classmethod
    def from_state(cls, question_id: str, state: Sequence[Any]) -> Self:
        gold, gold_key, shown = state
        return cls(gold or None, gold_key if gold else NO_ANSWER, dict(shown))


class FunctionMatcher(OutcomeKind):
    """Map responses to outcome keys and correctness by an outcome function.

    A response is correct if `is_correct(value, example)` says so. Without such a function the gold answer goes through
    the outcome function as a response would, and a response with the same outcome is correct; an empty one is none.
    Values that Python calls equal are one outcome; NaN is no answer.

    Args:
        function: `(response, example) -> value | Outcome | None`, see `functions`, or its name as `load_function` takes
            it; its rule is its name and version (`OutcomeFunction.rule`).
        is_correct: `(value, example) -> bool` or its name, called in this process with values of answers only; its
            exceptions are raised.

    Attributes:
        bad_golds: question id -> reason why its gold answer is unusable. No response to the question is correct.
        doubtful_golds: always empty; `OutcomeMatcher` has some.
        rule: name and version of the function; counts made under another rule cannot be mixed with these. Empty for a
            function without a name, whose counts cannot be saved.

    Raises:
        TypeError: a function does not take two arguments.
        ValueError: a given name cannot be imported.
    """

    needs_row = True

    def __init__(
        self, function: str | Callable[..., Any], is_correct: str | Callable[[Any, Row], bool] | None = None
    ) -> None:
        self._function = wrapped(function)
        super().__init__(self._function.rule, _Question)
        arguments = "(value, example)"
        if isinstance(is_correct, str):
            self._is_correct: Callable[[Any, Row], bool] | None = load_function(is_correct, arguments)
        else:
            self._is_correct = is_correct
            if is_correct is not None:
                check_callable("is_correct", is_correct, arguments)
        self._ever_worked = False

    def classify(
        self,
        question_ids: Batch | Sequence[str],
        responses: Sequence[str] | None = None,
        golds: Sequence[str] | None = None,
        rows: Sequence[Row] | None = None,
        *,
        progress: Progress | None = None,
        limit_s: float | None = None,
    ) -> Outcomes:
        """Classify N responses and decide which are correct; equal responses to a question are classified once.

        Args:
            question_ids, responses, golds, rows: columns of a `Batch`, or a `Batch` in place of the first.
            progress: called as `progress(done, total)` once, after the function.
            limit_s: seconds for all calls of an isolated function together; golds come first. None is no limit.

        Returns:
            The `Outcomes`. A response on which the function failed has the outcome of that kind of failure, which is
            never correct, and one that it was not called on in time has no answer; `unresolved` counts these responses,
            and the log names the first ones.

        Raises:
            TypeError, ValueError: as for `Batch`, a question comes with another gold answer than before, the function
                failed on every response of its first batch, or `is_correct` returned no boolean. The matcher is then
                unchanged.
        """
        batch = Batch.of(question_ids, responses, golds, rows=rows)
        deadline = time.monotonic() + (float("inf") if limit_s is None else limit_s)
        pairs = list(zip(batch.question_ids, batch.responses, strict=True))
        with self.unless_refused(batch.question_ids):
            new_golds = self._new_golds(batch)
            row_of = new_golds | dict(zip(pairs, batch.examples, strict=True))
            texts = [text for _, text in row_of]
            results = dict(zip(row_of, self._function.call(texts, [*row_of.values()], deadline), strict=True))
            found = [results[pair] for pair in pairs]
            self._check_works(found)
            for pair in new_golds:
                self._keep_gold(*pair, results[pair])
            for question_id in self._without_gold(batch):
                self._report_gold(question_id, bad="the gold answer '' is empty")
            self._log_failures({pair: one for pair, one in zip(pairs, found, strict=True) if isinstance(one, Failure)})
            keys = [self._keep(question_id, one) for (question_id, _), one in zip(pairs, found, strict=True)]
            gold_keys = [self._questions[question_id].gold_key for question_id in batch.question_ids]
            correct = list(map(self._correct, found, keys, gold_keys, batch.examples))
        if progress is not None:
            progress(len(pairs), len(pairs))
        failed = sum(isinstance(one, Failure) for one in found)
        return Outcomes(np.array(keys, np.int64), np.array(correct, bool), list(map(_answer, found)), failed)

    def close(self) -> None:
        """Stop the function's processes, if it has any; a later call starts new ones."""
        self._function.close()

    def _check_works(self, found: Sequence[Found | Failure]) -> None:
        """Refuse a function that raises, or returns what is no outcome, on every response of its first batch."""
        errors = [one.reason for one in found if isinstance(one, Failure) and one.kind == "error"]
        if errors and len(errors) == len(found) and not self._ever_worked:
            raise ValueError(
                f"outcome {self._function.name or self._function.function!r} failed on all {len(found)} responses of "
                f"its first batch; on the first: {errors[0]}"
            )
        self._ever_worked = self._ever_worked or len(errors) < len(found)

    def _new_golds(self, batch: Batch) -> dict[tuple[str, str], Row]:
        """Return the data rows of the golds that are not known yet, by question and gold; an empty one is none."""
        new: dict[tuple[str, str], Row] = {}
        gold_of: dict[str, str] = {}
        for question_id, gold, example in self._golds(batch):
            if not gold.strip():
                continue
            question = self._questions.get(question_id)
            known = None if question is None else question.gold
            before = gold_of.setdefault(question_id, gold) if known is None else known
            if before != gold:
                raise golds_differ(question_id, before, gold)
            if known is None:
                new.setdefault((question_id, gold), example)
        return new

    def _golds(self, batch: Batch) -> Iterable[tuple[str, str, Row]]:
        """Return question, gold and data row of every response, where golds decide."""
        if batch.golds is None or self._is_correct is not None:
            return ()
        return zip(batch.question_ids, batch.golds, batch.examples, strict=True)

    def _without_gold(self, batch: Batch) -> list[str]:
        ids = dict.fromkeys(question_id for question_id, gold, _ in self._golds(batch) if not gold.strip())
        return [id_ for id_ in ids if id_ not in self._questions or self._questions[id_].gold is None]

    def _keep_gold(self, question_id: str, gold: str, found: Found | Failure) -> None:
        if isinstance(found, Failure) and found.kind == "cut":
            return  # asked again with the question's next batch
        question = self._questions.setdefault(question_id, _Question())
        question.gold = gold
        if isinstance(found, Found) and found.text:
            question.gold_key = hash_key(_identity(found))
            self._report_gold(question_id)
        else:
            why = found.reason if isinstance(found, Failure) else "it has no outcome"
            self._report_gold(question_id, bad=f"the gold answer {gold[:MAX_SHOWN_CHARS]!r}: {why}")

    def _keep(self, question_id: str, found: Found | Failure) -> int:
        question = self._questions.setdefault(question_id, _Question())
        text = _identity(found)
        if not text:
            return NO_ANSWER
        key = hash_key(text)
        if isinstance(found, Found) and (former := hash_key(f"value:{found.text}")) != key:
            # Version 0.2 distinguished equal values of different types; outcomes that it counted keep their keys.
            key = former if former in question.shown or former == question.gold_key else key
        question.shown.setdefault(key, _shown(found))
        return key

    def _correct(self, found: Found | Failure, key: int, gold_key: int, example: Row) -> bool:
        if key == NO_ANSWER or isinstance(found, Failure):
            return False
        if self._is_correct is None:
            return key == gold_key
        value = value_of(found.text)
        try:
            with not_ending_the_process():
                return boolean("is_correct", self._is_correct(value, example))
        except Exception as error:
            error.add_note(f"is_correct was called with {value!r:.200} and the row {dict(example)!r:.500}")
            raise

    def _log_failures(self, failures: Mapping[tuple[str, str], Found | Failure]) -> None:
        for (question_id, response), failure in [*failures.items()][:MAX_LOGGED_FAILURES]:
            logger.warning(
                "question %r: the outcome function ended with %s on the response %r; this is its outcome.",
                question_id,
                ": ".join(failure),  # type: ignore[arg-type]
                response[-MAX_SHOWN_CHARS:],
            )
        if len(failures) > MAX_LOGGED_FAILURES:
            logger.warning("the outcome function failed on %d responses of this call in all.", len(failures))


class GivenMatcher(FunctionMatcher):
    """Take the keys that the caller gives, `Batch.outcome_keys`, as outcomes; 0 is no answer."""

    needs_row = False
    needs_keys = True

    def __init__(self) -> None:
        # Under this name version 0.2 has saved such counts.
        super().__init__(OutcomeFunction(_given, name="outcome_rl.outcomes.functions:given"))

    def classify(  # type: ignore[override]
        self, question_ids: Any, *columns: Any, progress: Any = None, limit_s: float | None = None, **named: Any
    ) -> Outcomes:
        """Classify N keys.

        Raises:
            TypeError, ValueError: as for `Batch`, there are golds, or the keys are not N integers.
        """
        batch = Batch.of(question_ids, *columns, **named)
        if batch.golds is not None:
            raise ValueError("golds cannot be compared with given outcomes; pass golds=None and correct")
        keys = np.asarray(getattr(batch.outcome_keys, "cpu", lambda: batch.outcome_keys)())
        if keys.shape != (len(batch),) or keys.dtype.kind not in "iu":
            raise ValueError(
                f"outcome_keys must be {len(batch)} integers, one per response; got {keys.dtype} of shape {keys.shape}"
            )
        batch = replace(batch, responses=[str(key) for key in keys.tolist()])
        return super().classify(batch, progress=progress, limit_s=limit_s)


def _given(key: str, example: Row) -> int | None:
    return int(key) or None


def _identity(found: Found | Failure) -> str:
    """Return the text whose hash is the outcome's key; empty for no answer."""
    if isinstance(found, Failure):
        return "" if found.kind == "cut" else f"failed:{found.kind}"
    return found.text and f"value:{identity(found.text)}"


def _shown(found: Found | Failure) -> str:
    if isinstance(found, Failure):
        return f"({found.kind})"
    value = value_of(found.text)
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}..."


def _answer(found: Found | Failure) -> Answer | None:
    """Return the outcome as an answer; the span is empty where the function gave none."""
    if not _identity(found):
        return None
    span = (0, 0) if isinstance(found, Failure) else (found.start, found.end)
    return Answer(_shown(found), *span, "function")
