"""The classes of the paper's code: math-verify about every two texts, where `outcome` names `PaperClasses`.

math-verify is no equivalence relation, neither symmetric nor transitive. So a class is a fact: question and key, and
the text that it began with. A new text is compared with the gold answer, then with the first texts of the classes in
the order in which these began. It gets the key of the first one that it equals, or begins a class. Facts are only
added, so a text keeps its class; they are the texts that an `Explorer` keeps with its counts (`OutcomeKind.seen`), and
the kind itself keeps nothing.

The new texts of a call are decided in sorted order, so the order of the responses does not matter. On several ranks,
texts that are new in the same step are compared with texts of earlier steps, and not with one another.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from outcome_rl.isolation.grader import Pair, Progress, Verdict
from outcome_rl.outcomes.batch import Batch
from outcome_rl.outcomes.grading import can_vote
from outcome_rl.outcomes.keys import NO_ANSWER, canonical_text, hash_key
from outcome_rl.outcomes.kinds import Outcomes, until
from outcome_rl.outcomes.matcher import OutcomeMatcher, final_golds
from outcome_rl.outcomes.outcome import Outcome


class _Classes(NamedTuple):
    """The classes of the texts of a question."""

    key_of: dict[str, int]
    unresolved: set[str]  # texts with a comparison that has no result


class PaperClasses(OutcomeMatcher):
    """Read final answers, and put those into one class that math-verify calls equal, whatever our rules say."""

    rule = "math_verify/1"

    def _classify_answers(
        self, batch: Batch, answers: list[Outcome | None], progress: Progress | None, limit_s: float | None
    ) -> Outcomes:
        forms = [answer.text.strip() if answer and canonical_text(answer.text) else "" for answer in answers]
        golds = final_golds(batch)
        gold_of = dict(zip(batch.question_ids, golds, strict=True))
        new: dict[str, set[str]] = {question_id: set() for question_id in gold_of}
        for question_id, form in zip(batch.question_ids, forms, strict=True):
            new[question_id].add(form)
        running = {id_: _classes(self.seen.get(id_, {}), gold_of[id_], sorted(new[id_] - {""})) for id_ in new}
        classes = self._run(running, progress, until(limit_s))
        rows = [(classes[question_id], form) for question_id, form in zip(batch.question_ids, forms, strict=True)]
        keys = [own.key_of.get(form, NO_ANSWER) for own, form in rows]
        gold_keys = [classes[id_].key_of.get(gold_of[id_], NO_ANSWER) for id_ in batch.question_ids]
        keys_N = np.array(keys, np.int64)
        correct_N = (keys_N == np.array(gold_keys, np.int64)) & (keys_N != NO_ANSWER)
        self._log_cut(limit_s, sum(form != "" and form not in own.key_of for own, form in rows))
        answered = [answer if key != NO_ANSWER else None for answer, key in zip(answers, keys, strict=True)]
        unresolved = sum(form in own.unresolved for own, form in rows)
        return Outcomes(keys_N, correct_N, answered, unresolved, *self._golds_to_report(batch, golds))

    def _run(
        self,
        running: dict[str, Generator[Pair, Verdict, _Classes]],
        progress: Progress | None,
        deadline: float,
    ) -> dict[str, _Classes]:
        """Run the questions side by side: each asks for one comparison at a time."""
        ended: dict[str, _Classes] = {}
        replies: dict[str, Verdict | None] = dict.fromkeys(running)
        done = 0
        while replies:
            asked: dict[str, Pair] = {}
            for question_id, reply in replies.items():
                try:
                    asked[question_id] = running[question_id].send(reply)  # type: ignore[arg-type] # None starts it
                except StopIteration as end:
                    ended[question_id] = end.value
            verdicts = self.pool.vote(list(asked.values()), deadline)
            done += len(asked)
            if progress is not None and asked:
                progress(done, done)
            replies = dict(zip(asked, verdicts, strict=True))
        return ended


def _classes(known: Mapping[int, str], gold: str, new: Sequence[str]) -> Generator[Pair, Verdict, _Classes]:
    """Yield the pairs to compare, in turn, and return the classes of the gold and of new texts.

    Args:
        known: key -> first text, of the classes so far, in the order in which they began.
        gold: empty for none.
    """
    first = dict(known)
    found = _Classes({}, set())
    for text in dict.fromkeys([gold, *new] if gold and canonical_text(gold) else new):
        own = hash_key(f"r:{text}")
        key = own
        if own not in first:
            with_gold = {found.key_of[gold]: gold} if gold in found.key_of else {}
            for other_key, other in [*with_gold.items(), *first.items()]:
                verdict = (yield other, text) if can_vote(other, text) else "different"
                if verdict == "equal":
                    key = other_key
                elif verdict != "different":  # no result: a class of its own, or none if there was no time
                    found.unresolved.add(text)
                    key = NO_ANSWER if verdict == "cut" else own
                if verdict != "different":
                    break
        if key != NO_ANSWER:
            found.key_of[text] = key
            if text != gold or text in new:
                first.setdefault(key, text)
    return found
