"""Samples of the base policy on the training questions: what as many of them would have solved and found."""

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outcome_rl.analyze import classify_samples, reading_of
from outcome_rl.exploration.config import ExplorationConfig
from outcome_rl.files.samples import read_sample_file
from outcome_rl.metrics import pass_at_k
from outcome_rl.outcomes.keys import NO_ANSWER

logger = logging.getLogger(__name__)


class BaseSamples(NamedTuple):
    """Outcomes of samples of the base policy: number of samples, correct ones, and sizes of the answer classes."""

    samples_Q: NDArray[np.int64]
    correct_Q: NDArray[np.int64]
    question_A: NDArray[np.int64]  # index of the question of each answer
    size_A: NDArray[np.int64]
    wrong_A: NDArray[np.bool_]

    @classmethod
    def read(cls, paths: Sequence[Path], exploration: ExplorationConfig) -> "BaseSamples":
        """Read files of samples, as `outcome-rl eval` writes them; answers are compared by `exploration`.

        Raises:
            FileNotFoundError, ValueError: a file cannot be read, or no question has a usable gold answer.
        """
        found = [question for path in paths for question in _classified(path, exploration)]
        if not found:
            raise ValueError(f"--base: no question of {', '.join(map(str, paths))} has a usable gold answer")
        classes = [np.unique(keys[keys != NO_ANSWER], return_counts=True) for keys, _ in found]
        return cls(
            np.array([len(keys) for keys, _ in found]),
            np.array([int(correct.sum()) for _, correct in found]),
            np.repeat(np.arange(len(found)), [len(sizes) for _, sizes in classes]),
            np.concatenate([sizes for _, sizes in classes]),
            np.concatenate(
                [~np.isin(values, keys[correct]) for (values, _), (keys, correct) in zip(classes, found, strict=True)]
            ),
        )

    @property
    def largest_k(self) -> int:
        return int(self.samples_Q.min())

    def solved(self, k: int) -> float:
        """Return the expected share of the questions that k samples each solve."""
        return float(pass_at_k(self.samples_Q, self.correct_Q, k).mean())

    def distinct(self, k: int) -> float:
        """Return the expected number of different answers among k samples, mean over the questions."""
        return float(pass_at_k(self.samples_Q[self.question_A], self.size_A, k).sum() / len(self.samples_Q))

    def distinct_unsolved(self, k: int) -> float:
        """Return the expected number of different answers among k samples, over questions that these do not solve.

        `sum_x E[answers of x; x unsolved] / sum_x P(x unsolved)`: with c correct samples and m of a wrong answer, the
        answer is among k samples of an unsolved question with probability `C(n-c,k)/C(n,k) - C(n-c-m,k)/C(n,k)`.
        NaN if every question is surely solved.
        """
        n, c, size = (
            column[self.wrong_A]
            for column in (self.samples_Q[self.question_A], self.correct_Q[self.question_A], self.size_A)
        )
        unsolved = (1 - pass_at_k(self.samples_Q, self.correct_Q, k)).sum()
        seen = (pass_at_k(n, c + size, k) - pass_at_k(n, c, k)).sum()
        return float(seen / unsolved) if unsolved > 0 else math.nan


def _classified(path: Path, exploration: ExplorationConfig) -> list[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    matcher = exploration.matcher()
    if matcher.reads == "rows":
        logger.warning(
            "--base: exploration.outcome=%s gets the rows of %s, which lack the columns of the data; a function that "
            "reads these finds other outcomes",
            exploration.outcome,
            path,
        )
    questions = read_sample_file(path, **reading_of(matcher)).questions
    with matcher:
        outcomes, found = classify_samples(matcher, questions)
    pairs = zip(questions, outcomes, strict=True)
    return [outcome for question, outcome in pairs if question.question_id not in found.bad_golds]
