"""Outcomes of mathematics: the key of the final answer's canonical text, and whether it equals the gold answer.

Both depend on texts and rules alone. Where the rules do not read the answer or the gold, math-verify casts a vote on
whether the answer is correct. It changes no key, and it remembers nothing but its last results.
"""

import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import numpy as np

from outcome_rl.isolation.grader import MAX_LOGGED_CHARS, MathVerifyPool, Progress
from outcome_rl.outcomes.batch import Batch
from outcome_rl.outcomes.extraction.response import extract_answer, final_answer
from outcome_rl.outcomes.grading import grade
from outcome_rl.outcomes.keys import OUTCOME_RULE, Tag, canonical_text, outcome_key
from outcome_rl.outcomes.kinds import OutcomeKind, Outcomes, golds_of, until
from outcome_rl.outcomes.outcome import Outcome

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

MAX_VOTES = 1024
"""Most pairs of a step that math-verify votes on: a sixth of a second each, in the worst data that was seen."""

_DOUBTS: dict[str, str] = {
    Tag.UNREAD: "no rule reads it, so math-verify compares the responses with it",
    Tag.UNIQUE: "it exceeds a bound or is ambiguous, so only the same text is correct",
    Tag.COLLECTION: "it holds several values, and a response must give all of them",
}


class OutcomeMatcher(OutcomeKind):
    """Read final answers, and compare them with the gold answers (`classify`).

    Args:
        workers: number of math-verify processes, by default one per CPU; they start at the first vote.
        timeout_s: time limit of one vote, in seconds.
        tolerant: whether an answer that agrees with the gold answer but for rounding, labels or units counts as
            correct (`tolerance`). Keys stay strict: such an answer keeps a separate outcome.

    Raises:
        ValueError: an argument is not positive.

    Example:
        >>> with OutcomeMatcher() as matcher:
        ...     outcomes = matcher.classify(["q1", "q1"], [r"so \\boxed{\\frac12}", r"so \\boxed{0.3}"], ["0.5", "0.5"])
        >>> outcomes.correct.tolist()
        [True, False]
    """

    rule = OUTCOME_RULE
    reads = "answers"

    def __init__(
        self,
        workers: int | None = None,
        timeout_s: float = 5.0,
        *,
        tolerant: bool = True,
    ) -> None:
        self.tolerant = tolerant
        self.pool = MathVerifyPool(workers, timeout_s)

    def classify_answers(
        self,
        question_ids: Sequence[str],
        answers: Sequence[str | None],
        golds: Sequence[str] | None,
        *,
        progress: Progress | None = None,
    ) -> Outcomes:
        """Classify answers that were extracted before, like `classify`; None means no answer."""
        batch = Batch(question_ids, [answer or "" for answer in answers], golds)
        given = [None if answer is None else Outcome(answer) for answer in answers]
        return self._report(self._with_votes(batch, given, progress, None))

    def close(self) -> None:
        """Stop the math-verify processes; a later call starts new ones."""
        self.pool.close()

    def _classified(self, batch: Batch, progress: Progress | None, limit_s: float | None) -> Outcomes:
        return self._with_votes(batch, once_each(extract_answer, batch.responses), progress, limit_s)

    def _with_votes(self, batch: Batch, *arguments: Any) -> Outcomes:
        votes, seconds = self.pool.votes, self.pool.seconds
        found = self._classify_answers(batch, *arguments)
        return found._replace(votes=self.pool.votes - votes, votes_s=self.pool.seconds - seconds)

    def _classify_answers(
        self, batch: Batch, answers: list[Outcome | None], progress: Progress | None, limit_s: float | None
    ) -> Outcomes:
        forms = ["" if answer is None else answer.text.strip() for answer in answers]
        golds = final_golds(batch)
        pairs = list(zip(golds, forms, strict=True))
        of_pair = grade(
            pairs,
            self.pool,
            tolerant=self.tolerant,
            deadline=until(limit_s),
            most=None if limit_s is None else MAX_VOTES,
            progress=progress,
        )
        verdicts = [of_pair[pair] for pair in pairs]
        self._log_cut(limit_s, verdicts.count("cut"))
        return Outcomes(
            np.array(once_each(outcome_key, forms), np.int64),
            np.array([verdict == "equal" for verdict in verdicts], np.bool_),
            answers,
            sum(verdict not in ("equal", "different") for verdict in verdicts),
            *self._golds_to_report(batch, golds),
        )

    def _golds_to_report(self, batch: Batch, golds: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return the questions with an unusable gold answer, and those whose gold answer needs a look, with reasons."""
        bad, doubtful = self._bad_golds(batch, {}), dict[str, str]()
        for question_id, gold in dict(zip(batch.question_ids, golds, strict=True)).items():
            canonical = canonical_text(gold)
            if gold and not canonical:
                bad[question_id] = f"the gold answer {gold!r} is empty"
            doubt = "" if canonical == "{}" else _DOUBTS.get(canonical[:2], _DOUBTS.get(canonical[:1], ""))
            if doubt:
                doubtful[question_id] = f"the gold answer {gold[:MAX_LOGGED_CHARS]!r}: {doubt}"
        return bad, doubtful

    def _log_cut(self, limit_s: float | None, number: int) -> None:
        if number:
            logger.warning(
                "the comparisons of %d answers had not begun after %g s or %d votes, the limits of a step; these are "
                "not correct in this step, and are compared when they come again.",
                number,
                limit_s,
                MAX_VOTES,
            )


def once_each(call: Callable[[T], R], values: Sequence[T]) -> list[R]:
    """Map a function over values, calling it once for equal ones: samples of one question are often identical."""
    return list(map(cache(call), values))


def answer_text(response: str) -> str | None:
    """Return the final answer of a response; None is no answer."""
    answer = extract_answer(response)
    return None if answer is None else answer.text


def final_golds(batch: Batch) -> list[str]:
    """Return the final answers of the golds of N responses, empty for none."""
    return [gold.strip() for gold in once_each(final_answer, golds_of(batch))]
