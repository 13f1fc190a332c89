"""Classification of responses by an outcome function: equal values are one outcome of a question.

It has the methods of `OutcomeMatcher`, which compares the final answers of mathematics.
"""

import ast
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from outcome_rl.outcomes.batch import Batch, Row
from outcome_rl.outcomes.functions import MAX_SHOWN_CHARS, Failure, Outcome, value_key, value_of, wrapped
from outcome_rl.outcomes.keys import NO_ANSWER, hash_key
from outcome_rl.outcomes.kinds import OutcomeKind, Outcomes, Progress, Texts, answer_of, empty_golds, golds_of
from outcome_rl.user_functions import boolean, check_callable, load_function, not_ending_the_process

logger = logging.getLogger(__name__)

MAX_GOLDS = 1 << 16
MAX_LOGGED_FAILURES = 5  # of one call


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
            self._is_correct: Callable[[Any, Row], bool] | None = load_function(is_correct, arguments)
        else:
            self._is_correct = is_correct
            if is_correct is not None:
                check_callable("is_correct", is_correct, arguments)
        self._ever_worked = False
        self._golds: dict[tuple[str, str], Outcome | Failure] = {}  # question and gold -> its outcome, of the last ones

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
        """Call the function on N responses, once for equal ones to a question, and decide which are correct.

        Args:
            question_ids, responses, golds, rows: columns of a `Batch`, or a `Batch` in place of the first.
            texts: not read.
            progress: called as `progress(done, total)` once, after the function.
            limit_s: seconds for all calls of an isolated function together; golds come first. None is no limit.

        Returns:
            The `Outcomes`. A response on which the function failed has the outcome of that kind of failure, which is
            never correct, and one that it was not called on in time has no answer; `unresolved` counts these responses,
            and the log names the first ones.

        Raises:
            TypeError, ValueError: as for `Batch`, the function failed on every response of its first batch, or
                `is_correct` returned no boolean.
        """
        batch = Batch.of(question_ids, responses, golds, rows=rows)
        deadline = time.monotonic() + (float("inf") if limit_s is None else limit_s)
        pairs = list(zip(batch.question_ids, batch.responses, strict=True))
        given = golds_of(batch) if self._is_correct is None else [""] * len(batch)
        with_gold = list(zip(batch.question_ids, given, strict=True))
        new = {
            pair: example
            for pair, example in zip(with_gold, batch.examples, strict=True)
            if pair[1].strip() and pair not in self._golds
        }
        row_of = new | dict(zip(pairs, batch.examples, strict=True))
        results = dict(
            zip(row_of, self._function.call([text for _, text in row_of], [*row_of.values()], deadline), strict=True)
        )
        found = [results[pair] for pair in pairs]
        self._check_works(found)
        of_gold = {pair: results.get(pair) or self._golds.get(pair) for pair in with_gold if pair[1].strip()}
        bad = self._bad_golds(batch, of_gold)
        self.report(bad, {})
        self._log_failures({pair: one for pair, one in zip(pairs, found, strict=True) if isinstance(one, Failure)})
        correct = [
            self._correct(one, of_gold.get(gold), example)
            for one, gold, example in zip(found, with_gold, batch.examples, strict=True)
        ]
        # A gold that was cut is asked again. The others are kept: a function may be slow.
        self._golds |= {pair: results[pair] for pair in new if not _is_cut(results[pair])}
        while len(self._golds) > MAX_GOLDS:
            del self._golds[next(iter(self._golds))]
        if progress is not None:
            progress(len(pairs), len(pairs))
        failed = sum(isinstance(one, Failure) for one in found)
        keys_N = np.array([one.key for one in found], np.int64)
        return Outcomes(keys_N, np.array(correct, np.bool_), list(map(answer_of, found)), failed, bad)

    def same_gold(self, a: str, b: str) -> bool:
        return a == b or self._is_correct is not None

    def key_of(self, key: int, text: str) -> int:
        """Return the key of a value that version 0.2 counted: it distinguished 1, 1.0 and True."""
        try:
            former = json.dumps(ast.literal_eval(text))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return key
        return value_key(value_of(former)) if hash_key(f"value:{former}") == key else key

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

    def _bad_golds(self, batch: Batch, of_gold: Mapping[tuple[str, str], Outcome | Failure | None]) -> dict[str, str]:
        if batch.golds is None or self._is_correct is not None:
            return {}
        bad = empty_golds(batch)
        for (question_id, gold), one in of_gold.items():
            if one is not None and not _is_cut(one) and (isinstance(one, Failure) or one.key == NO_ANSWER):
                why = one.reason if isinstance(one, Failure) else "it has no outcome"
                bad[question_id] = f"the gold answer {gold[:MAX_SHOWN_CHARS]!r}: {why}"
        return bad

    def _correct(self, found: Outcome | Failure, gold: Outcome | Failure | None, example: Row) -> bool:
        if found.key == NO_ANSWER or isinstance(found, Failure):
            return False
        if self._is_correct is None:
            return gold is not None and found.key == gold.key
        try:
            with not_ending_the_process():
                return boolean("is_correct", self._is_correct(found.value, example))
        except Exception as error:
            error.add_note(f"is_correct was called with {found.value!r:.200} and the row {dict(example)!r:.500}")
            raise

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
