"""Kinds of outcomes: the base class that the `Explorer` relies on, and outcome functions.

A kind is a rule and two pure functions. What it returns depends on nothing but its arguments, so that a response has
the same outcome in every step, on every rank and in every run:

    class Words(OutcomeKind):
        rule = "words/1"

        def outcome(self, response, row):            # a value, an `Outcome`, or None
            return len(response.split())

        def is_correct(self, outcome, gold, row):    # `outcome.value` is what `outcome` returned
            return outcome.value == int(gold)

`outcome="my_module:Words"` imports it, without registration. `outcome` may be an outcome function, also an isolated
one; without `is_correct`, a response is correct whose outcome is that of the gold answer. A kind that is slow overrides
`classify` in their place, which gets all responses of a step at once.
"""

import logging
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outcome_rl.isolation.closing import Closing
from outcome_rl.isolation.grader import Progress as Progress
from outcome_rl.outcomes.batch import Batch, Row
from outcome_rl.outcomes.extraction.response import final_answer
from outcome_rl.outcomes.functions import MAX_SHOWN_CHARS, Failure, OutcomeFunction, shown, wrapped
from outcome_rl.outcomes.keys import NO_ANSWER, canonical_text
from outcome_rl.outcomes.outcome import Outcome
from outcome_rl.user_functions import boolean, not_ending_the_process

logger = logging.getLogger(__name__)

MAX_SAID = 1 << 16
MAX_LOGGED_FAILURES = 5  # of one call
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
    - `votes`, `votes_s`: pairs that math-verify was asked about, and the seconds that this took.
    """

    keys: NDArray[np.int64]
    correct: NDArray[np.bool_]
    answers: list[Outcome | None]
    unresolved: int = 0
    bad_golds: Mapping[str, str] = {}
    doubtful_golds: Mapping[str, str] = {}
    votes: int = 0
    votes_s: float = 0.0


class OutcomeKind(Closing):
    """A rule from responses to outcomes, without any state but caches: `outcome` and `is_correct`, or `classify`.

    A response on which `outcome` failed has the outcome of that kind of failure, which is never correct. One that an
    isolated function was not called on in time has no answer. `Outcomes.unresolved` counts both, and the log names the
    first ones. A kind that fails on every response of its first batch is refused.

    Attributes:
        rule: name and version of the mapping from responses to keys; counts made under another rule cannot be mixed
            with these. Empty: it has no name, so that its counts cannot be saved.
        reads: "rows" if it reads the whole response, of an agent all turns, and the data row; "answers" if final
            answers alone, as `OutcomeMatcher` does.
        needs_gold: whether correctness comes from gold answers; False if `is_correct` decides by the row.
        seen: the outcomes that an `Explorer` has counted, which it sets before `classify`.
    """

    rule: str = ""
    reads: Literal["rows", "answers"] = "rows"
    needs_gold = True
    seen: Texts = MappingProxyType({})
    _ever_worked = False

    def outcome(self, response: str, row: Row) -> Any:
        """Return the outcome of a response, a value as of an outcome function or an `Outcome`; None is no answer."""
        raise NotImplementedError(f"{type(self).__name__} must define outcome, or classify")

    def is_correct(self, outcome: Outcome, gold: str, row: Row) -> bool:
        """Return whether an outcome, which is never "no answer", is correct; its exceptions are raised.

        It is called in this process. Without it, the gold answer goes through `outcome` as a response would, and a
        response with the same outcome is correct.
        """
        return outcome.key == self._function.call([gold], [row])[0].key

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
        """Read the outcomes of N responses, once for equal ones to a question, and decide which are correct.

        Args:
            question_ids, responses, golds, rows: columns of a `Batch`, or a `Batch` in place of the first; an empty
                gold is none, and a response without a gold is not correct.
            progress: called as `progress(done, total)` during slow comparisons.
            limit_s: seconds that slow comparisons or calls may take together; a response whose comparison or call has
                not begun by then is not correct, and is in `unresolved`. None is no limit.

        Raises:
            TypeError, ValueError: as for `Batch`.
        """
        return self._report(self._classified(Batch.of(question_ids, responses, golds, rows=rows), progress, limit_s))

    def _classified(self, batch: Batch, progress: Progress | None, limit_s: float | None) -> Outcomes:
        golds_N = golds_of(batch)
        outcomes, of_gold = self._outcomes(batch, golds_N, limit_s)
        pairs = list(zip(batch.question_ids, batch.responses, golds_N, strict=True))
        correct: dict[tuple[str, str, str], bool] = {}
        for pair, outcome, example in zip(pairs, outcomes, batch.examples, strict=True):
            if isinstance(outcome, Failure) or outcome.key == NO_ANSWER:
                correct[pair] = False
            elif pair not in correct:
                correct[pair] = self._decide(outcome, of_gold.get(pair[::2]), pair[2], example)
        if progress is not None:
            progress(len(batch), len(batch))
        return Outcomes(
            np.array([outcome.key for outcome in outcomes], np.int64),
            np.array([correct[pair] for pair in pairs], np.bool_),
            list(map(_shown, outcomes)),
            sum(isinstance(outcome, Failure) for outcome in outcomes),
            self._bad_golds(batch, of_gold),
        )

    def close(self) -> None:
        """Stop the processes, if there are any; a later call starts new ones."""
        self._function.close()

    @cached_property
    def _function(self) -> OutcomeFunction:
        if getattr(self.outcome, "__func__", None) is OutcomeKind.outcome:
            self.outcome("", {})
        return self.outcome if isinstance(self.outcome, OutcomeFunction) else OutcomeFunction(self.outcome)

    @property
    def _compares(self) -> bool:
        """Whether the outcome of the gold answer decides."""
        return self.needs_gold and type(self).is_correct is OutcomeKind.is_correct

    @cached_property
    def _said(self) -> dict[tuple[str, str], None]:
        return {}

    def _outcomes(
        self, batch: Batch, golds: Sequence[str], limit_s: float | None
    ) -> tuple[Sequence[Outcome | Failure], dict[tuple[str, str], Outcome | Failure]]:
        """Return the outcomes of responses and of golds; the function is called once on all texts, golds first."""
        pairs = list(zip(batch.question_ids, batch.responses, strict=True))
        of_gold = {
            pair: example
            for pair, example in zip(zip(batch.question_ids, golds, strict=True), batch.examples, strict=True)
            if pair[1].strip() and self._compares
        }
        row_of = of_gold | dict(zip(pairs, batch.examples, strict=True))
        called = self._function.call([text for _, text in row_of], [*row_of.values()], until(limit_s))
        results = dict(zip(row_of, called, strict=True))
        outcomes = [results[pair] for pair in pairs]
        self._check_works(outcomes)
        _log_failures({pair: one for pair, one in zip(pairs, outcomes, strict=True) if isinstance(one, Failure)})
        return outcomes, {pair: results[pair] for pair in of_gold}

    def _decide(self, outcome: Outcome, of_gold: Outcome | Failure | None, gold: str, example: Row) -> bool:
        if self._compares:
            return of_gold is not None and outcome.key == of_gold.key
        if self.needs_gold and not gold.strip():
            return False
        try:
            with not_ending_the_process():
                return boolean("is_correct", self.is_correct(outcome, gold, example))
        except Exception as error:
            error.add_note(f"is_correct was called with {outcome.value!r:.200} and the row {dict(example)!r:.500}")
            raise

    def _bad_golds(self, batch: Batch, of_gold: Mapping[tuple[str, str], Outcome | Failure]) -> dict[str, str]:
        """Return the questions whose gold answer is unusable, each with the reason."""
        if batch.golds is None or not self.needs_gold:
            return {}
        given = {question_id for question_id, gold in zip(batch.question_ids, batch.golds, strict=True) if gold.strip()}
        bad = dict.fromkeys((id_ for id_ in batch.question_ids if id_ not in given), "the gold answer '' is empty")
        for (question_id, gold), one in of_gold.items():
            why = one.reason if isinstance(one, Failure) else "it has no outcome" * (one.key == NO_ANSWER)
            if why and not (isinstance(one, Failure) and one.kind == "cut"):  # which is asked again
                bad[question_id] = f"the gold answer {gold[:MAX_SHOWN_CHARS]!r}: {why}"
        return bad

    def _check_works(self, outcomes: Sequence[Outcome | Failure]) -> None:
        """Refuse a function that raises, or returns what is no outcome, on every response of its first batch."""
        errors = [one.reason for one in outcomes if isinstance(one, Failure) and one.kind == "error"]
        if errors and len(errors) == len(outcomes) and not self._ever_worked:
            raise ValueError(
                f"outcome {self._function.name or self._function.function!r} failed on all {len(outcomes)} responses "
                f"of its first batch; on the first: {errors[0]}"
            )
        self._ever_worked = self._ever_worked or len(errors) < len(outcomes)

    def _report(self, outcomes: Outcomes) -> Outcomes:
        """Say why golds are unusable or doubtful, each of them once; return the outcomes."""
        for golds, say in ((outcomes.bad_golds, _warn), (outcomes.doubtful_golds, logger.warning)):
            for one in golds.items():
                if one not in self._said:
                    self._said[one] = None
                    say("question %r: %s.", *one)
        while len(self._said) > MAX_SAID:
            self._said.pop(next(iter(self._said)), None)
        return outcomes


class FunctionMatcher(OutcomeKind):
    """An outcome function as a kind: its rule is its name and version (`OutcomeFunction.rule`).

    Args:
        function: `(response, example) -> value | Outcome | None`, see `functions`, or its name as `load_function` takes
            it. Without a name of its own it has no rule, and its counts cannot be saved.

    Raises:
        TypeError: the function does not take two arguments.
        ValueError: the name cannot be imported.
    """

    def __init__(self, function: str | Callable[..., Any]) -> None:
        self.outcome = wrapped(function)  # type: ignore[method-assign]
        self.rule = self.outcome.rule


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


def same_gold(kind: OutcomeKind, a: str, b: str) -> bool:
    """Return whether two gold answers, neither of them empty, are the same as texts or as answers."""
    return a == b or not kind.needs_gold or canonical_text(final_answer(a)) == canonical_text(final_answer(b))


def golds_differ(question_id: str, before: str, gold: str) -> ValueError:
    """Return the error for a question whose gold answer differs from an earlier one."""
    return ValueError(
        f"golds must agree for a question: question {question_id!r} had the gold answer {before!r} before; got "
        f"{gold!r}. Give different questions different ids, or fix the data."
    )


def _warn(text: str, question_id: str, why: str) -> None:
    warnings.warn(f"{text.rstrip('.') % (question_id, why)}; no response to it will count as correct.", stacklevel=4)


def _shown(outcome: Outcome | Failure) -> Outcome | None:
    """Return an outcome with a value for people; None for no answer."""
    if outcome.key == NO_ANSWER:
        return None
    return Outcome(f"({outcome.kind})") if isinstance(outcome, Failure) else outcome._replace(value=shown(outcome.text))


def _log_failures(failures: Mapping[tuple[str, str], Failure]) -> None:
    for (question_id, response), failure in [*failures.items()][:MAX_LOGGED_FAILURES]:
        logger.warning(
            "question %r: the outcome function ended with %s on the response %r; this is its outcome.",
            question_id,
            ": ".join(failure),
            response[-MAX_SHOWN_CHARS:],
        )
    if len(failures) > MAX_LOGGED_FAILURES:
        logger.warning("the outcome function failed on %d responses of this call in all.", len(failures))
