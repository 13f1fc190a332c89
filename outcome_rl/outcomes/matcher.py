"""Classification of answers into outcome classes per question, and comparison with the gold answers.

Canonical texts decide almost all comparisons. If no rule reads an answer, a pairwise equivalence check decides, by
default math-verify. It is not an equivalence relation (neither symmetric nor transitive), so the matcher builds classes
by deciding each new text once. The text is compared with the question's gold answer, then with the question's other
classes that need the check, in the order of their keys. It gets the key of the first one that it equals, and keeps it.
New texts of one call are decided in sorted order, so the order of the responses within a call does not matter. A text
on which math-verify hangs or fails is quarantined: it is never compared again. Checkpoints contain the state, so a
resumed run keeps its classes.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any, Literal, Self, TypeVar

import numpy as np

from outcome_rl.outcomes.batch import Batch, Row
from outcome_rl.outcomes.comparisons import ONE, Comparisons, Progress, Question, Text, needs_judge
from outcome_rl.outcomes.extraction.answer import Answer
from outcome_rl.outcomes.extraction.response import extract_answer, final_answer
from outcome_rl.outcomes.functions import boolean, check_callable, name_of
from outcome_rl.outcomes.grader import MAX_LOGGED_CHARS, MathVerifyPool, Verdict
from outcome_rl.outcomes.keys import NO_ANSWER, OUTCOME_RULE, Tag, canonical_text, is_open
from outcome_rl.outcomes.kinds import OutcomeKind, Outcomes, golds_differ
from outcome_rl.outcomes.refutation import refuted
from outcome_rl.outcomes.tolerance import contradicts, within_tolerance

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

_DOUBTS: dict[str, str] = {
    Tag.UNREAD: "no rule reads it, so math-verify compares the responses with it",
    Tag.UNIQUE: "it exceeds a bound or is ambiguous, so only the same text is correct",
    Tag.COLLECTION: "it holds several values, and a response must give all of them",
}

Judge = Callable[[str, str], bool]
Equivalence = Literal["canonical", "math_verify"] | Judge


class OutcomeMatcher(OutcomeKind):
    """Map responses to outcome keys and correctness; an answer to a question always gets the same key.

    Args:
        equivalence: `"canonical"` (default) compares canonical texts, and asks math-verify only whether an answer that
            no rule reads equals the gold answer or another such answer; `"math_verify"` asks it about every two texts
            that differ, as the paper's code does; a function `(a, b) -> bool`, called in this process, replaces it.
        workers: number of math-verify processes, by default one per CPU; they start at the first comparison.
        timeout_s: time limit of one comparison, in seconds.
        gold_tolerance: whether an answer that agrees with the gold answer but for rounding, labels or units counts as
            correct (`tolerance`). It has no effect unless `equivalence` is "canonical". Keys stay
            strict: such an answer keeps a separate outcome.

    Attributes:
        bad_golds: question id -> reason why its gold answer is unusable. No response to the question is correct.
        doubtful_golds: question id -> reason to check its gold answer, which is used: no rule reads it, or it holds
            several values. Each is logged once.
        rule: version of the mapping from answers to keys; counts made under another rule cannot be mixed with these.

    Raises:
        TypeError: `equivalence` is a function that does not take two arguments, or is a coroutine function.
        ValueError: `equivalence` is unknown, or another argument is not positive.

    Example:
        >>> with OutcomeMatcher() as matcher:
        ...     outcomes = matcher.classify(["q1", "q1"], [r"so \boxed{\frac12}", r"so \boxed{0.3}"], ["0.5", "0.5"])
        >>> outcomes.correct.tolist()
        [True, False]
    """

    def __init__(
        self,
        equivalence: Equivalence = "canonical",
        workers: int | None = None,
        timeout_s: float = 5.0,
        *,
        gold_tolerance: bool = True,
    ) -> None:
        if not callable(equivalence) and equivalence not in ("canonical", "math_verify"):
            raise ValueError(
                f"equivalence must be 'canonical', 'math_verify' or a function (a, b) -> bool; got {equivalence!r}."
            )
        if callable(equivalence):
            check_callable("equivalence", equivalence, "(a, b)")
        self._canonical = equivalence == "canonical"
        self._tolerant = gold_tolerance and self._canonical
        self._judge = equivalence if callable(equivalence) else None
        name = (name_of(equivalence) or "custom") if callable(equivalence) else equivalence
        super().__init__(OUTCOME_RULE if self._canonical else f"{OUTCOME_RULE}+{name}", Question)
        self._pool = MathVerifyPool(workers, timeout_s)

    needs_gold = gives_spans = reads_answers = True

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        """Return a new matcher with the settings of an `ExplorationConfig`."""
        return cls(settings.equivalence, settings.workers, settings.timeout_s, gold_tolerance=settings.gold_tolerance)

    def classify(
        self,
        question_ids: Batch | Sequence[str],
        responses: Sequence[str] | None = None,
        golds: Sequence[str] | None = None,
        *,
        progress: Progress | None = None,
        limit_s: float | None = None,
    ) -> Outcomes:
        """Extract and classify the answers of N responses, and compare them with the gold answers.

        Args:
            question_ids, responses, golds: columns of a `Batch`, or a `Batch` in place of the first. Without golds
                the golds of earlier calls are used; responses to a question without a gold are not correct.
            progress: called as `progress(done, total)` during pairwise comparisons, the slow part; `total` grows while
                texts are found that differ from the gold answers.
            limit_s: seconds that the comparisons may take together. An answer whose comparisons have not begun by then
                counts as none, and is compared when it comes again. None means no limit.

        Returns:
            The `Outcomes`, one entry per row.

        Raises:
            TypeError, ValueError: as for `Batch`, or a question has another gold answer than in an earlier row or call.
                The matcher is then unchanged.
        """
        batch = Batch.of(question_ids, responses, golds)
        return self._classify(batch, _once_each(extract_answer, batch.responses), progress, limit_s)

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
        given = [None if answer is None else Answer(answer, 0, len(answer), "given") for answer in answers]
        return self._classify(batch, given, progress, None)

    @staticmethod
    def extract(response: str) -> str | None:
        """Return the final answer of a response; None is no answer."""
        answer = extract_answer(response)
        return None if answer is None else answer.text

    def _classify(
        self, batch: Batch, answers: list[Answer | None], progress: Progress | None, limit_s: float | None
    ) -> Outcomes:
        given = batch.golds is not None
        golds = [""] * len(batch) if batch.golds is None else _once_each(final_answer, batch.golds)
        with self.unless_refused(batch.question_ids):
            questions = [
                self._question(question_id, gold, given=given)
                for question_id, gold in zip(batch.question_ids, golds, strict=True)
            ]
            texts = _once_each(lambda answer: self._text("" if answer is None else answer.text), answers)
            rows = list(zip(questions, texts, strict=True))
            new: dict[Question, dict[str, Text]] = {}
            for question, text in rows:
                # The gold is included: it may be new to a question that had none.
                for one in (question.gold, text):
                    if one.identity and one.identity not in question.key_of:
                        seen = new.setdefault(question, {})
                        seen[one.identity] = min(one, seen.get(one.identity, one))  # independent of the rows' order
            unresolved = self._decide(new, progress, limit_s)
            keys = [q.key_of.get(text.identity, NO_ANSWER) for q, text in rows]
            gold_keys = [q.key_of.get(q.gold.identity, NO_ANSWER) for q in questions]
        keys_N = np.array(keys, dtype=np.int64)
        correct_N = (keys_N == np.array(gold_keys, dtype=np.int64)) & (keys_N != NO_ANSWER)
        if self._tolerant:
            for i, (question, text) in enumerate(rows):
                gold = question.gold
                if text.form == gold.form or not (text.identity and gold.identity):
                    continue
                decide = contradicts if correct_N[i] else within_tolerance
                correct_N[i] ^= decide(gold.form, text.form)
        return Outcomes(keys_N, correct_N, answers, unresolved)

    def _text(self, answer: str) -> Text:
        identity = canonical_text(answer)
        if self._canonical or not identity:
            return Text(identity, answer.strip(), is_open(identity))
        return Text(f"r:{answer.strip()}", answer.strip(), True)  # every two texts that differ are checked

    def _question(self, question_id: str, gold: str, *, given: bool) -> Question:
        """Return the question, with its gold answer if one was ever given; an empty one is none."""
        question: Question | None = self._questions.get(question_id)
        if question is None:
            question = self._questions[question_id] = Question(question_id, self._text(""))
        if not given or (question.gold.form and gold.strip() in ("", question.gold.form)):
            return question
        text = self._text(gold)
        if not question.gold.form:  # its first gold
            question.gold = text
            if text.identity and not question.representatives:
                question.found_class(text)
            self._check_gold(question_id, gold, text.identity if self._canonical else canonical_text(gold))
        elif question.gold.identity != text.identity:
            raise golds_differ(question_id, question.gold.form, gold)
        return question

    def _check_gold(self, question_id: str, gold: str, canonical: str) -> None:
        """Report a gold answer that is unusable or may be wrong."""
        doubt = "" if canonical == "{}" else _DOUBTS.get(canonical[:2], _DOUBTS.get(canonical[:1], ""))
        self._report_gold(
            question_id,
            bad="" if canonical else f"the gold answer {gold!r} is empty",
            doubt=doubt and f"the gold answer {gold[:MAX_LOGGED_CHARS]!r}: {doubt}",
        )

    def _decide(self, new: dict[Question, dict[str, Text]], progress: Progress | None, limit_s: float | None) -> int:
        """Assign a class to every new text of every question; return the number of comparisons without a result."""
        deadline = time.monotonic() + (float("inf") if limit_s is None else limit_s)
        comparisons = Comparisons(partial(self._compare, deadline=deadline), progress)
        order = {question: sorted(texts.values()) for question, texts in new.items()}
        if self._judge is None:  # a user's function has no time limit
            for question, texts in order.items():
                if question.gold.is_open and any(needs_judge(question.gold, text) for text in texts):
                    comparisons.ask(question, ONE, question.gold)
            comparisons.run()
        for question, texts in order.items():
            for text in texts:
                with_gold = question.gold.identity and comparisons.ask(question, question.gold, text)
                if not with_gold and self._judge is None:
                    comparisons.ask(question, ONE, text)
        comparisons.run()
        # The other comparisons are among texts that no rule reads: a text that a rule reads differs from all others.
        # Each text is compared with one other at a time, so that it hangs once, not with every other text.
        waiting = []
        for question, texts in order.items():
            wrong = [text for text in texts if text.is_open and not comparisons.equal(question.gold, text)]
            others = [other for other in question.representatives.values() if other.is_open and other != question.gold]
            waiting += [(question, iter([*others, *wrong[:i]]), text) for i, text in enumerate(wrong)]
            if question.gold in texts:  # new to a question that had none
                waiting.append((question, iter(question.representatives.values()), question.gold))
        while waiting:
            waiting = [
                (question, others, text)
                for question, others, text in waiting
                if any(comparisons.ask(question, other, text) for other in others)
            ]
            comparisons.run()
        for question, texts in order.items():
            for text in sorted(texts, key=lambda text: text != question.gold):
                if comparisons.is_cut(question, text):
                    continue
                key = comparisons.class_of(question, text)
                if key is None:
                    question.found_class(text)
                else:
                    question.key_of[text.identity] = key
        if cut := comparisons.count("cut"):
            logger.warning(
                "%d comparisons of answers had not begun after %g s, the limit of a step; these answers count as none, "
                "and are compared when they come again.",
                cut,
                limit_s,
            )
        return comparisons.count("timeout", "error", "cut")

    def _compare(
        self, pairs: Sequence[tuple[str, str]], progress: Progress | None, deadline: float
    ) -> Iterable[Verdict]:
        if self._judge is None:
            results = self._pool.compare(pairs, progress, deadline)
            if not self._canonical:
                return results
            # math-verify drops words and dots, so an equality may be refuted by the texts or their values.
            checked = zip(pairs, results, strict=True)
            return ["different" if result == "equal" and refuted(*pair) else result for pair, result in checked]
        judge = self._judge

        def verdict(a: str, b: str) -> Verdict:
            return "equal" if boolean("equivalence", judge(a, b)) else "different"

        return ["cut" if time.monotonic() >= deadline else verdict(a, b) for a, b in pairs]

    def close(self) -> None:
        """Stop the math-verify processes; classes are kept, and a later call starts new processes."""
        self._pool.close()


def _once_each(call: Callable[[T], R], values: Sequence[T]) -> list[R]:
    """Map a function over values, calling it once for equal ones: samples of one question are often identical."""
    return list(map(cache(call), values))
