"""Sums over everything that a count table holds: the metrics of every step follow from them.

They are computed from the table once, and then from the columns of each batch: its counts and histories before it.
"""

from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from outcome_rl.outcomes.keys import NO_ANSWER
from outcome_rl_kernels import OutcomeCounts
from outcome_rl_kernels.counts.table import Past


class QuestionHistory(NamedTuple):
    """Everything sampled for a question so far."""

    visits: int  # samples
    successes: int  # correct samples
    distinct: int  # different answers


class Totals(NamedTuple):
    """Sums over the questions sampled so far; "no answer" is no different answer."""

    samples: int = 0
    questions: int = 0
    solved: int = 0  # questions with a correct sample
    answers: int = 0  # different ones of a question, summed over questions
    answers_solved: int = 0  # the same over the solved questions

    @classmethod
    def of(cls, counts: OutcomeCounts) -> Self:
        """Compute the sums of a table; of one on a GPU, this synchronises."""
        return cls._of(*counts.history(torch.unique(counts.items().question_keys)))

    @classmethod
    def _of(cls, visits: Any, successes: Any, distinct: Any) -> Self:
        """Compute the sums of the histories of some questions, tensors or arrays."""
        solved = successes > 0
        sums = (visits.sum(), (visits > 0).sum(), solved.sum(), distinct.sum(), distinct[solved].sum())
        return cls(*map(int, sums))

    def after(self, questions_N: Tensor, keys_N: Tensor, correct_N: Tensor, past: Past) -> Self:
        """Return the sums after a batch of N responses.

        Args:
            questions_N, keys_N, correct_N: the batch, on the CPU.
            past: what the table held of its outcomes, (N,), and its questions, (3, N), before it, on the CPU.
        """
        keys, correct, counts = keys_N.numpy(), correct_N.numpy(), past.counts.numpy()
        _, first, index = np.unique(questions_N.numpy(), return_index=True, return_inverse=True)
        new_N = (counts == 0) & (keys != NO_ANSWER)
        new_answers = np.unique(np.stack([index[new_N], keys[new_N]]), axis=1)[0]
        before_3Q = past.history.numpy()[:, first]
        added_3Q = [np.bincount(rows, minlength=len(first)) for rows in (index, index[correct], new_answers)]
        changes = zip(self, self._of(*before_3Q), self._of(*(before_3Q + added_3Q)), strict=True)
        return type(self)(*(total - before + after for total, before, after in changes))

    def metrics(self, *, judged: bool) -> dict[str, float]:
        """Return the metrics of everything sampled so far; `judged` says whether correctness is known."""
        unsolved = self.questions - self.solved
        metrics = {
            "exploration/samples": float(self.samples),
            "exploration/questions": float(self.questions),
            "exploration/distinct_answers": self.answers / max(self.questions, 1),
        }
        if judged:
            metrics["exploration/solved_fraction"] = self.solved / max(self.questions, 1)
            if unsolved:
                metrics["exploration/distinct_answers_unsolved"] = (self.answers - self.answers_solved) / unsolved
        return metrics
