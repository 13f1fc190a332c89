"""Pairwise comparisons of answers: texts, the classes of a question, and verdicts, each asked for once."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from outcome_rl.outcomes.grader import MAX_LOGGED_CHARS, Verdict
from outcome_rl.outcomes.keys import Tag, hash_key

logger = logging.getLogger(__name__)

MAX_JUDGED_CHARS = 300
"""Longer answers are compared by canonical text alone. The longest of 13,286 gold answers has 139 characters; longer
texts are prose, which math-verify reads as a product of letters, for seconds."""

Progress = Callable[[int, int], None]


class Text(NamedTuple):
    """An answer in comparisons: its identity, the form for the judge, and whether only the judge can compare it."""

    identity: str
    form: str
    is_open: bool


# A text is compared with this number first where there is no gold answer, or none that math-verify can read.
ONE = Text("", "1", is_open=False)


@dataclass(eq=False)
class Question:
    """The gold answer of a question, and the outcome class of every text seen so far."""

    id: str
    gold: Text
    key_of: dict[str, int] = field(default_factory=dict)  # identity -> key of its class
    founders: dict[int, Text] = field(default_factory=dict)  # key of a class -> the text that founded it
    apart: set[str] = field(default_factory=set)  # identities of texts on which a comparison hung or failed

    def snapshot(self) -> Any:
        """Return what `restore` needs: texts and classes are only ever added, so that their number tells which."""
        return self.gold, len(self.key_of), len(self.founders), self.apart and set(self.apart)

    def restore(self, snapshot: Any) -> None:
        """Take back everything since a snapshot."""
        self.gold, texts, classes, apart = snapshot
        self.apart = set(apart)
        for added, number in ((self.key_of, texts), (self.founders, classes)):
            while len(added) > number:
                added.popitem()

    def found_class(self, text: Text) -> None:
        key = hash_key(text.identity)
        self.key_of[text.identity] = key
        self.founders[key] = text

    def texts(self) -> dict[int, str]:
        return {key: text.form for key, text in self.founders.items()}

    def state(self) -> dict[str, Any]:
        return {
            "gold": list(self.gold),
            "key_of": dict(self.key_of),
            # One list, since a list for each would take most of the time of saving millions.
            "founders": [value for key, text in self.founders.items() for value in (key, *text)],
            "apart": sorted(self.apart),
        }

    @classmethod
    def from_state(cls, question_id: str, state: dict[str, Any]) -> Self:
        flat = state["founders"]
        if flat and isinstance(flat[0], list):  # version 0.2
            flat = [value for founder in flat for value in founder]
        width = 1 + len(Text._fields)
        columns = (flat[i::width] for i in range(width))
        return cls(
            question_id,
            gold=Text(*state["gold"]),
            key_of=dict(state["key_of"]),
            founders={key: Text(*text) for key, *text in zip(*columns, strict=True)},
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

    def count(self, *verdicts: Verdict) -> int:
        """Return the number of comparisons that ended with one of these verdicts."""
        return sum(verdict in verdicts for verdict in self._verdicts.values())

    def ask(self, question: Question, a: Text, b: Text) -> bool:
        """Ask for a comparison in the next run; return whether it is needed, and neither text is set apart."""
        if not needs_judge(a, b) or not question.apart.isdisjoint((a.identity, b.identity)):
            return False
        if (a, b) not in self._verdicts:
            self._asked.setdefault((a, b), []).append(question)
        else:
            self._set_apart(question, a, b)
        return True

    def run(self) -> None:
        """Run the comparisons asked for since the last run."""
        done = len(self._verdicts)
        total = done + len(self._asked)

        def report(judged: int, _: int) -> None:
            if self._progress is not None:
                self._progress(done + judged, total)

        verdicts = self._compare([(a.form, b.form) for a, b in self._asked], report) if self._asked else []
        for ((a, b), questions), verdict in zip(self._asked.items(), verdicts, strict=True):
            self._verdicts[a, b] = verdict
            for question in questions:
                self._set_apart(question, a, b)
        self._asked.clear()

    def equal(self, a: Text, b: Text) -> bool:
        """Return whether two texts are equal, as far as it was asked."""
        return a.identity == b.identity or self._verdicts.get((a, b)) == "equal"

    def class_of(self, question: Question, text: Text) -> int | None:
        """Return the key of the first class that a text is in, that of the gold answer before all others."""
        classes = sorted(question.founders.items())
        if question.gold.identity in question.key_of:
            classes.insert(0, (question.key_of[question.gold.identity], question.gold))
        return next((key for key, founder in classes if self.equal(founder, text)), None)

    def _set_apart(self, question: Question, a: Text, b: Text) -> None:
        """Exclude the texts of a comparison that hung or failed from later ones, but not a gold answer that passed."""
        verdict = self._verdicts[a, b]
        if verdict in ("timeout", "error"):
            question.apart |= {text.identity for text in (a, b) if text is b or text not in (question.gold, ONE)}
            logger.warning(
                "question %r: no verdict (%s) on whether %r equals %r; they stay different outcomes, and math-verify "
                "is not asked about the first again.",
                question.id,
                verdict,
                b.form[:MAX_LOGGED_CHARS],
                a.form[:MAX_LOGGED_CHARS],
            )


def needs_judge(a: Text, b: Text) -> bool:
    """Return whether only the judge can tell if two texts are equal."""
    if a.identity == b.identity or not (a.is_open or b.is_open):
        return False
    if a.identity.startswith(Tag.UNIQUE) or b.identity.startswith(Tag.UNIQUE):
        return False
    return max(len(a.form), len(b.form)) <= MAX_JUDGED_CHARS
