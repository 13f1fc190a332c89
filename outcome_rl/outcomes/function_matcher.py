"""Classification of responses by an outcome function: equal values are one outcome of a question.

It has the methods of `OutcomeMatcher`, which compares the final answers of mathematics.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from outcome_rl.outcomes.comparisons import Progress
from outcome_rl.outcomes.extraction import Answer
from outcome_rl.outcomes.functions import (
    Example,
    Failure,
    Found,
    OutcomeFunction,
    call,
    load_function,
    rule_of,
    value_of,
)
from outcome_rl.outcomes.keys import NO_ANSWER, hash_key
from outcome_rl.outcomes.matcher import Matcher, Outcomes, golds_differ

logger = logging.getLogger(__name__)

MAX_SHOWN_CHARS = 240
MAX_LOGGED_FAILURES = 5  # of one call


@dataclass
class _Question:
    """The gold answer of a question, and a text of every outcome seen so far."""

    gold: str | None = None
    gold_key: int = NO_ANSWER
    shown: dict[int, str] = field(default_factory=dict)  # key -> text for people

    def texts(self) -> dict[int, str]:
        return dict(self.shown)

    def state(self) -> list[Any]:
        return [self.gold, self.gold_key, [*self.shown.items()]]

    @classmethod
    def from_state(cls, question_id: str, state: Sequence[Any]) -> Self:
        gold, gold_key, shown = state
        return cls(gold, int(gold_key), {int(key): str(text) for key, text in shown})


class FunctionMatcher(Matcher):
    """Map responses to outcome keys and correctness by an outcome function.

    A response is correct if `is_correct(value, example)` says so. Without such a function the gold answer goes through
    the outcome function as a response would, and a response with the same outcome is correct.

    Args:
        function: `(response, example) -> value | Outcome | None`, see `functions`, or its name as `load_function` takes
            it; its rule is `rule_of(function)`.
        is_correct: `(value, example) -> bool` or its name, called in this process with values of answers alone; its
            exceptions are raised.

    Attributes:
        bad_golds: question id -> reason why its gold answer is unusable. No response to the question is correct.
        doubtful_golds: always empty; `OutcomeMatcher` has some.
        rule: name and version of the function; counts made under another rule cannot be mixed with these.

    Raises:
        ValueError: the function is anonymous, or a given name cannot be imported.
    """

    def __init__(
        self, function: str | OutcomeFunction, is_correct: str | Callable[[Any, Example], bool] | None = None
    ) -> None:
        function = load_function(function) if isinstance(function, str) else function
        super().__init__(rule_of(function), _Question)
        self._function = function
        self._is_correct = load_function(is_correct) if isinstance(is_correct, str) else is_correct

    def classify(
        self,
        question_ids: Sequence[str],
        responses: Sequence[str],
        golds: Sequence[str] | None,
        examples: Sequence[Example] | None = None,
        *,
        progress: Progress | None = None,
        limit_s: float = float("inf"),
    ) -> Outcomes:
        """Classify N responses and tell which are correct; equal responses to a question are looked at once.

        Args:
            question_ids, responses, golds: as for `OutcomeMatcher.classify`.
            examples: N data rows, equal for all rows of a question; None passes empty ones.
            progress: called as `progress(done, total)` once, after the function.
            limit_s: seconds for all calls of an isolated function together; golds come first.

        Returns:
            The `Outcomes`. A response on which the function failed has the outcome of that kind of failure, which is
            never correct, and one that it was not called on in time has no answer; `unresolved` counts these responses,
            and the log names the first ones.

        Raises:
            TypeError, ValueError: as `OutcomeMatcher.classify`.
        """
        examples = [{}] * len(question_ids) if examples is None else examples
        golds = None if self._is_correct is not None else golds
        columns = [column for column in (question_ids, responses, golds) if column is not None]
        if any(len(column) != len(question_ids) for column in (*columns, examples)):
            raise ValueError("question_ids, responses, golds and examples must have one entry per response")
        if wrong := [value for column in columns for value in column if not isinstance(value, str)]:
            raise TypeError(f"question_ids, responses and golds must be strings; got {wrong[0]!r}. Use str()")
        with self._lock:
            rows = list(zip(question_ids, responses, strict=True))
            new_golds = {} if golds is None else self._new_golds(question_ids, golds, examples)
            example_of = new_golds | dict(zip(rows, examples, strict=True))
            texts = [text for _, text in example_of]
            results = call(self._function, texts, [*example_of.values()], time.monotonic() + limit_s)
            found = dict(zip(example_of, results, strict=True))
            for row in new_golds:
                self._keep_gold(*row, found[row])
            self._log_failures({row: found[row] for row in rows if isinstance(found[row], Failure)})
            keys = [self._keep(question_id, found[question_id, response]) for question_id, response in rows]
            gold_keys = [self._questions[question_id].gold_key for question_id in question_ids]
            correct = [
                self._correct(found[row], key, gold_key, example)
                for row, key, gold_key, example in zip(rows, keys, gold_keys, examples, strict=True)
            ]
        if progress is not None:
            progress(len(rows), len(rows))
        failed = sum(isinstance(found[row], Failure) for row in rows)
        answers = [_answer(found[row]) for row in rows]
        return Outcomes(np.array(keys, np.int64), np.array(correct, bool), answers, failed)

    def close(self) -> None:
        """Stop the function's processes, if it has any; a later call starts new ones."""
        close = getattr(self._function, "close", None)
        if close is not None:
            close()

    def _new_golds(
        self, question_ids: Sequence[str], golds: Sequence[str], examples: Sequence[Example]
    ) -> dict[tuple[str, str], Example]:
        """Return the data rows of the golds that are not known yet, by question and gold."""
        new: dict[tuple[str, str], Example] = {}
        gold_of: dict[str, str] = {}
        for question_id, gold, example in zip(question_ids, golds, examples, strict=True):
            question = self._questions.get(question_id)
            known = None if question is None else question.gold
            before = gold_of.setdefault(question_id, gold) if known is None else known
            if before != gold:
                raise golds_differ(question_id, before, gold)
            if known is None:
                new.setdefault((question_id, gold), example)
        return new

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
        identity = _identity(found)
        if not identity:
            return NO_ANSWER
        key = hash_key(identity)
        question.shown.setdefault(key, _shown(found))
        return key

    def _correct(self, found: Found | Failure, key: int, gold_key: int, example: Example) -> bool:
        if key == NO_ANSWER or isinstance(found, Failure):
            return False
        return key == gold_key if self._is_correct is None else bool(self._is_correct(value_of(found.text), example))

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


def _identity(found: Found | Failure) -> str:
    """Return the text whose hash is the outcome's key; empty for no answer."""
    if isinstance(found, Failure):
        return "" if found.kind == "cut" else f"failed:{found.kind}"
    return found.text and f"value:{found.text}"


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
