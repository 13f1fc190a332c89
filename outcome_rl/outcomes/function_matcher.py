"""Classification of responses by an outcome function: equal values are one outcome of a question.

It has the methods of `OutcomeMatcher`, which compares the final answers of mathematics.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from outcome_rl.outcomes.batch import Batch, Row
from outcome_rl.outcomes.functions import MAX_SHOWN_CHARS, Failure, wrapped
from outcome_rl.outcomes.keys import NO_ANSWER
from outcome_rl.outcomes.kinds import OutcomeKind, until
from outcome_rl.outcomes.outcome import Outcome
from outcome_rl.user_functions import boolean, check_callable, load_function, not_ending_the_process

logger = logging.getLogger(__name__)

MAX_GOLDS = 1 << 16
MAX_LOGGED_FAILURES = 5  # of one call


class FunctionMatcher(OutcomeKind):
    """Map responses to outcome keys and correctness by an outcome function.

    A response is correct if `is_correct(value, example)` says so. Without such a function the gold answer goes through
    the outcome function as a response would, and a response with the same outcome is correct; an empty one is none.
    Values that Python calls equal are one outcome; NaN is no answer.

    A response on which the function failed has the outcome of that kind of failure, which is never correct. One that it
    was not called on in time has no answer. `Outcomes.unresolved` counts both, and the log names the first ones. A
    function that fails on every response of its first batch is refused.

    Args:
        function: `(response, example) -> value | Outcome | None`, see `functions`, or its name as `load_function` takes
            it; its rule is its name and version (`OutcomeFunction.rule`).
        is_correct: `(value, example) -> bool` or its name, called in this process with values of answers only; its
            exceptions are raised.

    Attributes:
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
        super().__init__(self._function.rule)
        arguments = "(value, example)"
        if isinstance(is_correct, str):
            self._decides: Callable[[Any, Row], bool] | None = load_function(is_correct, arguments)
        else:
            self._decides = is_correct
            if is_correct is not None:
                check_callable("is_correct", is_correct, arguments)
        self._ever_worked = False
        self._golds: dict[tuple[str, str], Outcome | Failure] = {}  # question and gold -> its outcome, of the last ones

    def _outcomes(self, batch: Batch, golds: Sequence[str], limit_s: float | None) -> Sequence[Outcome | Failure]:
        """Call the function once on all texts that are new, golds first."""
        while len(self._golds) > MAX_GOLDS:
            del self._golds[next(iter(self._golds))]
        pairs = list(zip(batch.question_ids, batch.responses, strict=True))
        new = {
            pair: example
            for pair, example in zip(zip(batch.question_ids, golds, strict=True), batch.examples, strict=True)
            if pair[1].strip() and pair not in self._golds and self._decides is None
        }
        row_of = new | dict(zip(pairs, batch.examples, strict=True))
        called = self._function.call([text for _, text in row_of], [*row_of.values()], until(limit_s))
        results = dict(zip(row_of, called, strict=True))
        outcomes = [results[pair] for pair in pairs]
        self._check_works(outcomes)
        self._log_failures({pair: one for pair, one in zip(pairs, outcomes, strict=True) if isinstance(one, Failure)})
        # Kept, because a function may be slow; a gold that was cut is asked again.
        self._golds |= {pair: results[pair] for pair in new if not _is_cut(results[pair])}
        return outcomes

    def _is_correct(self, outcome: Outcome, question_id: str, gold: str, example: Row) -> bool:
        if self._decides is None:
            of_gold = self._golds.get((question_id, gold))
            return of_gold is not None and outcome.key == of_gold.key
        try:
            with not_ending_the_process():
                return boolean("is_correct", self._decides(outcome.value, example))
        except Exception as error:
            error.add_note(f"is_correct was called with {outcome.value!r:.200} and the row {dict(example)!r:.500}")
            raise

    def _bad_golds(self, batch: Batch, golds: Sequence[str]) -> dict[str, str]:
        if self._decides is not None:
            return {}
        bad = super()._bad_golds(batch, golds)
        for question_id, gold in dict.fromkeys(zip(batch.question_ids, golds, strict=True)):
            one = self._golds.get((question_id, gold))
            if one is not None and (isinstance(one, Failure) or one.key == NO_ANSWER):
                why = one.reason if isinstance(one, Failure) else "it has no outcome"
                bad[question_id] = f"the gold answer {gold[:MAX_SHOWN_CHARS]!r}: {why}"
        return bad

    def same_gold(self, a: str, b: str) -> bool:
        return a == b or self._decides is not None

    def close(self) -> None:
        """Stop the function's processes, if it has any; a later call starts new ones."""
        self._function.close()

    def _check_works(self, found: Sequence[Outcome | Failure]) -> None:
        """Refuse a function that raises, or returns what is no outcome, on every response of its first batch."""
        errors = [one.reason for one in found if isinstance(one, Failure) and one.kind == "error"]
        if errors and len(errors) == len(found) and not self._ever_worked:
            raise ValueError(
                f"outcome {self._function.name or self._function.function!r} failed on all {len(found)} responses of "
                f"its first batch; on the first: {errors[0]}"
            )
        self._ever_worked = self._ever_worked or len(errors) < len(found)

    def _log_failures(self, failures: Mapping[tuple[str, str], Outcome | Failure]) -> None:
        for (question_id, response), failure in [*failures.items()][:MAX_LOGGED_FAILURES]:
            logger.warning(
                "question %r: the outcome function ended with %s on the response %r; this is its outcome.",
                question_id,
                ": ".join(failure),  # type: ignore[arg-type]
                response[-MAX_SHOWN_CHARS:],
            )
        if len(failures) > MAX_LOGGED_FAILURES:
            logger.warning("the outcome function failed on %d responses of this call in all.", len(failures))


def _is_cut(found: Outcome | Failure) -> bool:
    return isinstance(found, Failure) and found.kind == "cut"
