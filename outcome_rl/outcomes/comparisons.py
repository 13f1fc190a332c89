"""Pairwise comparisons of answers: texts, the classes of a question, and results; each pair is compared once."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from outcome_rl.outcomes.grader import MAX_LOGGED_CHARS, Verdict
from outcome_rl.outcomes.keys import Tag, hash_key

logger = logging.getLogger(__name__)

MAX_JUDGED_CHARS = 300
"""Longer answers are compared only by canonical text. The longest of 13,286 gold answers has 139 characters; longer
texts are prose, which math-verify reads as a product of letters, for seconds."""

Progress = Callable[[int, int], None]


class Text(NamedTuple):
    """An answer in comparisons: identity, text for the equivalence check, and whether only it can compare them."""

    identity: str
    form: str
    is_open: bool


# A text is compared with this number first if there is no gold answer that math-verify can read.
ONE = Text("", "1", is_open=False)


@dataclass(eq=False)
class Question:
    """The gold answer of a question, and the outcome class of every text seen so far."""

    id: str
    gold: Text
    key_of: dict[str, int] = field(default_factory=dict)  # identity -> key of its class
    representatives: dict[int, Text] = field(default_factory=dict)  # key of a class -> its first text
    apart: set[str] = field(default_factory=set)  # identities of texts on which a comparison hung or failed

    def snapshot(self) -> Any:
        """Return the state for `restore`: texts and classes are only added, so their numbers suffice."""
        return self.gold, len(self.key_of), len(self.representatives), self.apart and set(self.apart)

    def restore(self, snapshot: Any) -> None:
        """Undo all changes since a snapshot."""
        self.gold, texts, classes, apart = snapshot
        self.apart = set(apart)
        for added, number in ((self.key_of, texts), (self.representatives, classes)):
            while len(added) > number:
                added.popitem()

    def found_class(self, text: Text) -> None:
        key = hash_key(text.identity)
        self.key_of[text.identity] = key
        self.representatives[key] = text

    def texts(self) -> dict[int, str]:
        return {key: text.form for key, text in self.representatives.items()}

    def state(self) -> dict[str, Any]:
        first = {text.identity for text in self.representatives.values()}
        return {
            "gold": list(self.gold),
            # The first text of a class is among the founders; most classes have no other.
            "key_of": {identity: key for identity, key in self.key_of.items() if identity not in first},
            # One flat list: a list per class would take most of the time when millions are saved.
            "founders": [value for key, text in self.representatives.items() for value in (key, *text)],
            "apart": sorted(self.apart),
        }

    @classmethod
    def from_state(cls, question_id: str, state: dict[str, Any]) -> Self:
        flat = state["founders"]
        if flat and isinstance(flat[0], list):  # version 0.2
            flat = [value for row in flat for value in row]
        keys, *columns = (flat[i::4] for i in range(4))
        texts = map(Text._make, zip(*columns, strict=True))
        return cls(
            question_id,
            gold=Text(*state["gold"]),
            key_of=dict(zip(columns[0], keys, strict=True)) | state["key_of"],
            representatives=dict(zip(keys, texts, strict=True)),
            apart=set(state["apart"]),
        )


class Comparisons:
    """Pairwise comparisons of one call, collected for all questions, run together, then looked up."""

    def __init__(
        self,
        compare: Callable[[Sequence[tuple[str, str]], Progress | None], Iterable[Verdict]],
        progress: Progress | None,
    ) -> None:
        self._compare = compare
        self._progress = progress
        self._asked: dict[tuple[Text, Text], list[Question]] = {}
        self._verdicts: dict[tuple[Text, Text], Verdict] = {}
        self._cut: set[tuple[Question, Text]] = set()

    def count(self, *verdicts: Verdict) -> int:
        """Return the number of comparisons with one of these results."""
        return sum(verdict in verdicts for verdict in self._verdicts.values())

    def ask(self, question: Question, a: Text, b: Text) -> bool:
        """Queue a comparison for the next run; return whether it is needed and neither text is quarantined."""
        if not needs_judge(a, b) or not question.apart.isdisjoint((a.identity, b.identity)):
            return False
        if (a, b) not in self._verdicts:
            self._asked.setdefault((a, b), []).append(question)
        else:
            self._note(question, a, b)
        return True

    def run(self) -> None:
        """Run the comparisons queued since the last run."""
        done = len(self._verdicts)
        total = done + len(self._asked)

        def report(compared: int, _: int) -> None:
            if self._progress is not None:
                self._progress(done + compared, total)

        verdicts = self._compare([(a.form, b.form) for a, b in self._asked], report) if self._asked else []
        for ((a, b), questions), verdict in zip(self._asked.items(), verdicts, strict=True):
            self._verdicts[a, b] = verdict
            for question in questions:
                self._note(question, a, b)
        self._asked.clear()

    def equal(self, a: Text, b: Text) -> bool:
        """Return whether two texts are equal; False if they were not compared."""
        return a.identity == b.identity or self._verdicts.get((a, b)) == "equal"

    def is_cut(self, question: Question, text: Text) -> bool:
        """Return whether there was no time to find the class of a text."""
        return (question, text) in self._cut

    def class_of(self, question: Question, text: Text) -> int | None:
        """Return the key of the first class that a text equals; the class of the gold answer comes first."""
        classes = sorted(question.representatives.items())
        if question.gold.identity in question.key_of:
            classes.insert(0, (question.key_of[question.gold.identity], question.gold))
        return next((key for key, representative in classes if self.equal(representative, text)), None)

    def _note(self, question: Question, a: Text, b: Text) -> None:
        """Note what a comparison without a result means for a question.

        The texts of one that hung or failed are excluded from later ones, but not a gold answer that passed. The class
        of a text stays open where there was no time.
        """
        verdict = self._verdicts[a, b]
        if verdict == "cut" and a != ONE:
            self._cut.add((question, b))
        if verdict in ("timeout", "error"):
            question.apart |= {text.identity for text in (a, b) if text is b or text not in (question.gold, ONE)}
            logger.warning(
                "question %r: no result (%s) on whether %r equals %r; they stay different outcomes, and math-verify "
                "is not asked about the first again.",
                question.id,
                verdict,
                b.form[:MAX_LOGGED_CHARS],
                a.form[:MAX_LOGGED_CHARS],
            )


def needs_judge(a: Text, b: Text) -> bool:
    """Return whether only the equivalence check can decide if two texts are equal."""
    if a.identity == b.identity or not (a.is_open or b.is_open):
        return False
    if a.identity.startswith(Tag.UNIQUE) or b.identity.startswith(Tag.UNIQUE):
        return False
    return max(len(a.form), len(b.form)) <= MAX_JUDGED_CHARS
