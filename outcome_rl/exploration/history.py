"""Sums over everything that a count table holds: the metrics of every step follow from them.

They are computed from the table once, and then from the columns of each batch: its counts and histories before it.
"""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from outcome_rl.outcomes.keys import NO_ANSWER
from outcome_rl_kernels import OutcomeCounts
from outcome_rl_kernels.counts.reference import Past


class QuestionHistory(NamedTuple):
    """Everything sampled for a question so far."""

    visits: int  # samples
    successes: int  # correct samples
    distinct: int  # different answers


class Totals(NamedTuple):
    """Sums over the questions sampled so far; "no answer" is no different answer."""

    samples: int = 0
    pairs: int = 0  # of a question and an outcome, "no answer" included
    questions: int = 0
    solved: int = 0  # questions with a correct sample
    answers: int = 0  # different ones of a question, summed over questions
    answers_solved: int = 0  # the same over the solved questions

    @classmethod
    def of(cls, counts: OutcomeCounts) -> Self:
        """Compute the sums of a table; of one on a GPU, this synchronises."""
        questions, outcomes, samples, successes = (column.cpu().numpy() for column in counts.items())
        unique, index = np.unique(questions, return_inverse=True)
        solved = np.bincount(index[successes > 0], minlength=len(unique)) > 0
        answers = np.bincount(index[outcomes != NO_ANSWER], minlength=len(unique))
        sums = (samples.sum(), len(questions), len(unique), solved.sum(), answers.sum(), answers[solved].sum())
        return cls(*map(int, sums))

    def after(
        self, questions_N: Tensor, keys_N: Tensor, correct_N: Tensor, past: Past
    ) -> tuple[Self, NDArray[np.bool_]]:
        """Return the sums after a batch, and whether the question of each of its N responses is solved then.

        Args:
            questions_N, keys_N, correct_N: the batch, on the CPU.
            past: what the table held of its outcomes, (N,), and its questions, (3, N), before it, on the CPU.
        """
        questions, keys, correct, counts = (x.numpy() for x in (questions_N, keys_N, correct_N, past.counts))
        visits, successes, distinct = past.history.numpy()
        _, first, index = np.unique(questions, return_index=True, return_inverse=True)
        order = np.lexsort((keys, index))
        is_first = np.ones(len(keys), np.bool_)
        is_first[1:] = (np.diff(index[order]) != 0) | (np.diff(keys[order]) != 0)
        new = order[is_first & (counts[order] == 0)]
        new_answers = np.bincount(index[new][keys[new] != NO_ANSWER], minlength=len(first))
        was_solved = successes[first] > 0
        solved = was_solved | (np.bincount(index[correct], minlength=len(first)) > 0)
        answers_solved = new_answers[solved].sum() + distinct[first][solved & ~was_solved].sum()
        added = (
            len(keys),
            len(new),
            (visits[first] == 0).sum(),
            (solved & ~was_solved).sum(),
            new_answers.sum(),
            answers_solved,
        )
        return type(self)(*(int(a + b) for a, b in zip(self, added, strict=True))), solved[index]

    def metrics(self, *, judged: bool) -> dict[str, float]:
        """Return the metrics of everything sampled so far; `judged` says whether correctness is known."""
        unsolved = self.questions - self.solved
        metrics = {
            "exploration/samples": float(self.samples),
            "exploration/questions": float(self.questions),
            "exploration/counted_outcomes": float(self.pairs),
            "exploration/distinct_answers": self.answers / max(self.questions, 1),
        }
        if judged:
            metrics["exploration/solved_fraction"] = self.solved / max(self.questions, 1)
            if unsolved:
                metrics["exploration/distinct_answers_unsolved"] = (self.answers - self.answers_solved) / unsolved
        return metrics
