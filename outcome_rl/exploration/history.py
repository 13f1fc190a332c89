"""Everything that a count table holds: the history of a question, and the metrics of all."""

from typing import NamedTuple

from outcome_rl_kernels.counts.table import Sums


class QuestionHistory(NamedTuple):
    """Everything sampled for a question so far."""

    visits: int  # samples
    successes: int  # correct samples
    distinct: int  # different answers


def metrics_of(sums: Sums, *, judged: bool) -> dict[str, float]:
    """Return the metrics of everything sampled so far; `judged` says whether correctness is known."""
    unsolved = sums.questions - sums.solved
    metrics = {
        "exploration/samples": float(sums.samples),
        "exploration/questions": float(sums.questions),
        "exploration/distinct_answers": sums.answers / max(sums.questions, 1),
    }
    if judged:
        metrics["exploration/solved_fraction"] = sums.solved / max(sums.questions, 1)
        if unsolved:
            metrics["exploration/distinct_answers_unsolved"] = (sums.answers - sums.answers_solved) / unsolved
    return metrics
