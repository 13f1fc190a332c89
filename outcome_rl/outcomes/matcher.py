"""Classification of answers into outcome classes per question, and comparison with the gold answers.

Canonical texts decide almost all comparisons from the text alone. Where no rule reads an answer, a pairwise judge
decides, by default math-verify. It is not an equivalence relation (neither symmetric nor transitive), so the matcher
builds classes by deciding each new text once: the text is compared with the question's gold answer, then with the
question's other classes that need a judge, in the order of their keys; it takes the key of the first that it equals,
and keeps it. New texts of one call are decided in sorted order, so the order of the responses within a call does not
matter. A text on which math-verify hangs or fails is set apart: it is compared with nothing else, ever. Checkpoints
contain the state, so a resumed run keeps its classes.
"""

import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from outcome_rl.outcomes.comparisons import ONE, Comparisons, Progress, Question, Text, needs_judge
from outcome_rl.outcomes.extraction import Answer, extract_answer
from outcome_rl.outcomes.grader import MAX_LOGGED_CHARS, MathVerifyPool, Verdict
from outcome_rl.outcomes.keys import NO_ANSWER, OUTCOME_RULE, Tag, canonical_text, is_open
from outcome_rl.outcomes.refutation import refuted
from outcome_rl.outcomes.tolerance import within_tolerance

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

_DOUBTS = {
    Tag.UNREAD: "no rule reads it, so math-verify compares the responses with it",
    Tag.UNIQUE: "it exceeds a bound or is ambiguous, so only the same text is correct",
    Tag.COLLECTION: "it holds several values, and a response must give all of them",
}

Judge = Callable[[str, str], bool]
Equivalence = Literal["canonical", "math_verify"] | Judge


class Outcomes(NamedTuple):
    """Outcomes of N responses.

    - `keys` (N,) int64: the outcome class of each response; `NO_ANSWER` = 0 without an answer.
    - `correct` (N,) bool: whether that class is the class of the question's gold answer.
    - `answers`, N entries: the extracted answers with their spans; None without an answer.
    - `unresolved`: number of comparisons in this call that timed out, failed or were cut at its time limit, which are
      logged and count as "different"; of an outcome function, the number of responses on which it failed.
    """

    keys: NDArray[np.int64]
    correct: NDArray[np.bool_]
    answers: list[Answer | None]
    unresolved: int


class Matcher:
    """Base of the matchers: keeps the outcomes of each question, saves them and forgets them."""

    def __init__(self, rule: str, question_type: Any) -> None:
        self.rule = rule
        self.bad_golds: dict[str, str] = {}
        self.doubtful_golds: dict[str, str] = {}
        self._question_type = question_type
        self._questions: dict[str, Any] = {}
        self._lock = threading.Lock()

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
        """Replace the outcomes of this matcher with saved ones.

        Raises:
            ValueError: if they were made under another rule, because their keys would not match new keys.
        """
        if state.get("rule") != self.rule:
            raise ValueError(
                f"state must have the outcome rule {self.rule!r} of this matcher; got {state.get('rule')!r}. Use the "
                "equivalence or outcome function, and the version, that the state was made with, or start without it."
            )
        questions = {
            question_id: self._question_type.from_state(question_id, saved)
            for question_id, saved in state["questions"].items()
        }
        bad_golds, doubtful_golds = dict(state["bad_golds"]), dict(state.get("doubtful_golds", {}))
        with self._lock:
            self._questions, self.bad_golds, self.doubtful_golds = questions, bad_golds, doubtful_golds

    def close(self) -> None:
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


class OutcomeMatcher(Matcher):
    """Map responses to outcome keys and correctness; an answer to a question always gets the same key.

    Args:
        equivalence: `"canonical"` (default) compares canonical texts, and asks math-verify only whether an answer that
            no rule reads equals the gold answer or another such answer; `"math_verify"` asks it about every two texts
            that differ, as the paper's code does; a function `(a, b) -> bool`, called in this process, replaces it.
        workers: number of math-verify processes, by default one per CPU; they start at the first comparison.
        timeout_s: time limit of one comparison, in seconds.
        gold_tolerance: whether an answer that agrees with the gold answer but for rounding, labels or units counts as
            correct (`tolerance.within_tolerance`). Keys stay strict: such an answer keeps an outcome of its own.

    Attributes:
        bad_golds: question id -> reason why its gold answer is unusable. No response to the question is correct.
        doubtful_golds: question id -> reason to check its gold answer, which is used: no rule reads it, or it holds
            several values. Each is logged once.
        rule: version of the mapping from answers to keys; counts made under another rule cannot be mixed with these.

    Raises:
        ValueError: if `equivalence` is unknown, or another argument is not positive.

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
        gold_tolerance: bool = False,
    ) -> None:
        if not callable(equivalence) and equivalence not in ("canonical", "math_verify"):
            raise ValueError(
                f"equivalence must be 'canonical', 'math_verify' or a function (a, b) -> bool; got {equivalence!r}."
            )
        self._canonical = equivalence == "canonical"
        self._tolerant = gold_tolerance
        self._judge = equivalence if callable(equivalence) else None
        name = "custom" if callable(equivalence) else equivalence
        super().__init__(OUTCOME_RULE if self._canonical else f"{OUTCOME_RULE}+{name}", Question)
        self._pool = MathVerifyPool(workers, timeout_s)

    def classify(
        self,
        question_ids: Sequence[str],
        responses: Sequence[str],
        golds: Sequence[str] | None,
        examples: object = None,
        *,
        progress: Progress | None = None,
        limit_s: float | None = None,
    ) -> Outcomes:
        """Extract and classify the answers of N responses, and compare them with the gold answers.

        Args:
            question_ids: N stable ids; rows with the same id belong to the same question.
            responses: N completions.
            golds: N gold answers, the same for all rows of a question, or texts that end in them, such as GSM8K's
                solutions. None: those of earlier calls; responses to a question without one are not correct.
            examples: not read; outcome functions read it (`FunctionMatcher`).
            progress: called as `progress(done, total)` during pairwise comparisons, the slow part; `total` grows while
                texts are found that differ from the gold answers.
            limit_s: seconds that the comparisons may take together; pairs that have not begun by then count as
                different, and are logged. None is no limit.

        Returns:
            The `Outcomes`, one entry per row.

        Raises:
            ValueError: if lengths differ, or a question has another gold answer than in an earlier row or call.
            TypeError: if an id, response or gold answer is not a string.
        """
        return self._classify(question_ids, _once_each(extract_answer, responses), golds, progress, limit_s)

    def classify_answers(
        self,
        question_ids: Sequence[str],
        answers: Sequence[str | None],
        golds: Sequence[str] | None,
        *,
        progress: Progress | None = None,
    ) -> Outcomes:
        """Classify answers that were extracted before, like `classify`; None means no answer."""
        given = [None if answer is None else Answer(answer, 0, len(answer), "given") for answer in answers]
        return self._classify(question_ids, given, golds, progress)

    def _classify(
        self,
        question_ids: Sequence[str],
        answers: list[Answer | None],
        golds: Sequence[str] | None,
        progress: Progress | None,
        limit_s: float | None = None,
    ) -> Outcomes:
        given = golds is not None
        golds = [""] * len(question_ids) if golds is None else golds
        if not len(question_ids) == len(answers) == len(golds):
            raise ValueError(
                f"question_ids, responses and golds must have one entry per response; "
                f"got {len(question_ids)}, {len(answers)} and {len(golds)}."
            )
        with self._lock:
            final_golds = _once_each(_final_answer, golds)
            questions = [
                self._question(question_id, gold, given=given)
                for question_id, gold in zip(question_ids, final_golds, strict=True)
            ]
            texts = _once_each(lambda answer: self._text("" if answer is None else answer.text), answers)
            rows = list(zip(questions, texts, strict=True))
            new: dict[Question, dict[str, Text]] = {}
            for question, text in rows:
                # The gold too: it may be new to a question that had none.
                for one in (question.gold, text):
                    if one.identity and one.identity not in question.key_of:
                        seen = new.setdefault(question, {})
                        seen[one.identity] = min(one, seen.get(one.identity, one))  # independent of the rows' order
            unresolved = self._decide(new, progress, limit_s)
            keys = [q.key_of[text.identity] if text.identity else NO_ANSWER for q, text in rows]
            gold_keys = [q.key_of.get(q.gold.identity, NO_ANSWER) for q in questions]
        keys_N = np.array(keys, dtype=np.int64)
        correct_N = (keys_N == np.array(gold_keys, dtype=np.int64)) & (keys_N != NO_ANSWER)
        if self._tolerant:
            correct_N |= [
                bool(text.identity and q.gold.identity) and within_tolerance(q.gold.form, text.form) for q, text in rows
            ]
        return Outcomes(keys_N, correct_N, answers, unresolved)

    def _text(self, answer: str) -> Text:
        identity = canonical_text(answer)
        if self._canonical or not identity:
            return Text(identity, answer.strip(), is_open(identity))
        return Text(f"r:{answer.strip()}", answer.strip(), True)  # the judge compares every two texts that differ

    def _question(self, question_id: str, gold: str, *, given: bool) -> Question:
        """Return the question, with its gold answer where one was ever given."""
        if not isinstance(question_id, str) or not isinstance(gold, str):
            raise TypeError(
                f"question_ids and golds must be strings; got {question_id!r} ({type(question_id).__name__}) "
                f"and {gold!r} ({type(gold).__name__}). Use str()."
            )
        question: Question | None = self._questions.get(question_id)
        is_new = question is None
        if question is None:
            question = self._questions[question_id] = Question(question_id, self._text(""))
        if not given or question.gold.form == gold != "":
            return question
        text = self._text(gold)
        if is_new or not (question.gold.identity or question_id in self.bad_golds):  # its first gold
            question.gold = text
            if text.identity and not question.founders:
                question.found_class(text)
            self._check_gold(question_id, gold)
        elif question.gold.identity != text.identity:
            raise golds_differ(question_id, question.gold.form, gold)
        return question

    def _check_gold(self, question_id: str, gold: str) -> None:
        """Report a gold answer that is unusable or may be wrong."""
        canonical = canonical_text(gold)
        doubts = (why for tag, why in _DOUBTS.items() if canonical.startswith(tag) and canonical != "{}")
        doubt = next(doubts, "")
        self._report_gold(
            question_id,
            bad="" if canonical else f"the gold answer {gold!r} is empty",
            doubt=doubt and f"the gold answer {gold[:MAX_LOGGED_CHARS]!r}: {doubt}",
        )

    def _decide(self, new: dict[Question, dict[str, Text]], progress: Progress | None, limit_s: float | None) -> int:
        """Assign a class to every new text of every question; return the number of comparisons without a verdict."""
        deadline = time.monotonic() + (float("inf") if limit_s is None else limit_s)
        comparisons = Comparisons(partial(self._compare, deadline=deadline), progress)
        order = {question: sorted(texts.values()) for question, texts in new.items()}
        if self._judge is None:  # a function of the user does not time out
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
        # The other comparisons are among texts that only a judge can compare: a rule that reads a text already tells it
        # apart from every other text. One at a time for each text, so that it hangs once, not with every other text.
        waiting = []
        for question, texts in order.items():
            wrong = [text for text in texts if text.is_open and not comparisons.equal(question.gold, text)]
            others = [other for other in question.founders.values() if other.is_open and other != question.gold]
            waiting += [(question, iter([*others, *wrong[:i]]), text) for i, text in enumerate(wrong)]
            if question.gold in texts:  # new to a question that had none
                waiting.append((question, iter(question.founders.values()), question.gold))
        while waiting:
            waiting = [
                (question, others, text)
                for question, others, text in waiting
                if any(comparisons.ask(question, other, text) for other in others)
            ]
            comparisons.run()
        for question, texts in order.items():
            for text in sorted(texts, key=lambda text: text != question.gold):
                key = comparisons.class_of(question, text)
                if key is None:
                    question.found_class(text)
                else:
                    question.key_of[text.identity] = key
        if cut := comparisons.count("cut"):
            logger.warning(
                "%d comparisons of answers had not begun after %g s, the limit of a step; they count as different.",
                cut,
                limit_s,
            )
        return comparisons.count("timeout", "error", "cut")

    def _compare(
        self, pairs: Sequence[tuple[str, str]], progress: Progress | None, deadline: float
    ) -> Iterable[Verdict]:
        if self._judge is None:
            verdicts = self._pool.compare(pairs, progress, deadline)
            if not self._canonical:
                return verdicts
            # math-verify drops words and dots: what the texts or their values refute is no equality.
            checked = zip(pairs, verdicts, strict=True)
            return ["different" if verdict == "equal" and refuted(*pair) else verdict for pair, verdict in checked]
        judge = self._judge
        return ["cut" if time.monotonic() >= deadline else "equal" if judge(a, b) else "different" for a, b in pairs]

    def close(self) -> None:
        """Stop the math-verify processes; classes are kept, and a later call starts new processes."""
        self._pool.close()


def _once_each(call: Callable[[T], R], values: Sequence[T]) -> list[R]:
    """Map a function over values, calling it once for equal ones: samples of one question are often identical."""
    try:
        return list(map(cache(call), values))
    except TypeError:  # a value without a hash, which the function refuses by its name
        return list(map(call, values))


def _final_answer(gold: Any) -> Any:
    """Return the answer in a solution that ends in one, such as GSM8K's `... #### 42`; else the value as given."""
    answer = extract_answer(gold) if isinstance(gold, str) else None
    return gold if answer is None else answer.text


def golds_differ(question_id: str, before: str, gold: str) -> ValueError:
    """Return the error for a question whose gold answer differs from an earlier one."""
    return ValueError(
        f"golds must agree for a question: question {question_id!r} had the gold answer {before!r} before; got "
        f"{gold!r}. Give different questions different ids, or fix the data."
    )
