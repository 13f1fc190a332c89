"""Outcomes of mathematics: the key of the final answer's canonical text, and whether it equals the gold answer.

Both depend on texts and rules alone. Where the rules do not read the answer or the gold, math-verify casts a vote on
whether the answer is correct. It changes no key, and it remembers nothing but its last results.
"""

import logging
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Self, TypeVar

import numpy as np

from outcome_rl.isolation.grader import MAX_LOGGED_CHARS, MathVerifyPool
from outcome_rl.outcomes.batch import Batch, Row
from outcome_rl.outcomes.extraction.response import extract_answer, final_answer
from outcome_rl.outcomes.grading import grade
from outcome_rl.outcomes.keys import OUTCOME_RULE, Tag, canonical_text, outcome_key
from outcome_rl.outcomes.kinds import OutcomeKind, Outcomes, Progress, Texts, golds_of, until
from outcome_rl.outcomes.outcome import Outcome

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

_DOUBTS: dict[str, str] = {
    Tag.UNREAD: "no rule reads it, so math-verify compares the responses with it",
    Tag.UNIQUE: "it exceeds a bound or is ambiguous, so only the same text is correct",
    Tag.COLLECTION: "it holds several values, and a response must give all of them",
}


class OutcomeMatcher(OutcomeKind):
    """Read final answers, and compare them with the gold answers.

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
    needs_gold = reads_answers = True

    def __init__(
        self,
        workers: int | None = None,
        timeout_s: float = 5.0,
        *,
        tolerant: bool = True,
        rule: str | None = None,
    ) -> None:
        super().__init__(rule)
        self._tolerant = tolerant
        self._pool = MathVerifyPool(workers, timeout_s)

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        return cls(settings.workers, settings.timeout_s, tolerant=settings.gold_tolerance)

    def classify_answers(
        self,
        question_ids: Sequence[str],
        answers: Sequence[str | None],
        golds: Sequence[str] | None,
        rows: Sequence[Row] | None = None,
        *,
        progress: Progress | None = None,
    ) -> Outcomes:
        """Classify answers that were extracted before, like `classify`; None means no answer, and rows are not read."""
        batch = Batch(question_ids, [answer or "" for answer in answers], golds)
        given = [None if answer is None else Outcome(answer) for answer in answers]
        return self.report(self._classify_answers(batch, given, {}, progress, None))

    @staticmethod
    def extract(response: str) -> str | None:
        """Return the final answer of a response; None is no answer."""
        answer = extract_answer(response)
        return None if answer is None else answer.text

    def same_gold(self, a: str, b: str) -> bool:
        return a == b or canonical_text(final_answer(a)) == canonical_text(final_answer(b))

    def text_of_gold(self, gold: str) -> tuple[int, str] | None:
        text = final_answer(gold).strip()
        return outcome_key(text), text

    def reads(self, rule: str) -> bool:
        return re.fullmatch(r"canonical/\d+", rule) is not None

    def key_of(self, key: int, text: str) -> int:
        return outcome_key(text)

    def close(self) -> None:
        """Stop the math-verify processes; a later call starts new ones."""
        self._pool.close()

    def _classify(self, batch: Batch, texts: Texts, progress: Progress | None, limit_s: float | None) -> Outcomes:
        return self._classify_answers(batch, once_each(extract_answer, batch.responses), texts, progress, limit_s)

    def _classify_answers(
        self,
        batch: Batch,
        answers: list[Outcome | None],
        texts: Texts,
        progress: Progress | None,
        limit_s: float | None,
    ) -> Outcomes:
        forms = ["" if answer is None else answer.text.strip() for answer in answers]
        golds = final_golds(batch)
        pairs = list(zip(golds, forms, strict=True))
        of_pair = grade(pairs, self._pool, tolerant=self._tolerant, deadline=until(limit_s), progress=progress)
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
        bad, doubtful = self._bad_golds(batch, golds), dict[str, str]()
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
                "the comparisons of %d answers had not begun after %g s, the limit of a step; these are not correct in "
                "this step, and are compared when they come again.",
                number,
                limit_s,
            )


def once_each(call: Callable[[T], R], values: Sequence[T]) -> list[R]:
    """Map a function over values, calling it once for equal ones: samples of one question are often identical."""
    return list(map(cache(call), values))


def final_golds(batch: Batch) -> list[str]:
    """Return the final answers of the golds of N responses, empty for none."""
    return [gold.strip() for gold in once_each(final_answer, golds_of(batch))]
