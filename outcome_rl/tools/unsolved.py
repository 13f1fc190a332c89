"""Training questions that a run has not solved, as its newest checkpoint counts them."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from outcome_rl.exploration.config import ExplorationConfig
from outcome_rl.exploration.explorer import Explorer
from outcome_rl.exploration.history import QuestionHistory
from outcome_rl.grpo.run.checkpoint import CHECKPOINTS, latest_checkpoint
from outcome_rl.outcomes.kinds import NAMED

SHOWN, ANSWERS = 20, 3  # questions, and answers of each


class UnsolvedQuestion(NamedTuple):
    """A question without a correct sample so far."""

    question_id: str
    visits: int
    without_answer: int
    answers: list[tuple[str, int]]  # the most frequent wrong ones, with their counts


class Unsolved(NamedTuple):
    """The training questions by their samples so far, and the most sampled ones that are unsolved."""

    by_visits: list[tuple[str, int, int]]  # range of samples, questions, unsolved ones among them
    questions: list[UnsolvedQuestion]
    number: int


def find_unsolved(folder: Path, config: Mapping[str, Any]) -> Unsolved | str | None:
    """Return the unsolved questions of a run's newest checkpoint, None without one.

    Args:
        folder: the run's folder.
        config: its settings, as `config.yaml` holds them. No function that they name is imported: with your own outcome
            function the result is a sentence that says so, as for counts that cannot be read.
    """
    checkpoint = latest_checkpoint(folder / CHECKPOINTS)
    if checkpoint is None:
        return None
    settings = config.get("exploration", {})
    outcome = settings.get("outcome", "math")
    if outcome not in NAMED:
        return f"not listed, because exploration.outcome={outcome} is a function, which a report does not import"
    try:
        read = ExplorationConfig(outcome=outcome, equivalence=settings.get("equivalence", "canonical"))
        with Explorer.load(checkpoint / "exploration", read) as explorer:
            return _unsolved(explorer)
    except (OSError, ValueError) as error:
        return f"not listed: {error}"


def _unsolved(explorer: Explorer) -> Unsolved:
    histories = explorer.questions()
    unsolved = {question_id: history for question_id, history in histories.items() if history.successes == 0}
    most = sorted(unsolved, key=lambda question_id: (-unsolved[question_id].visits, question_id))[:SHOWN]
    questions = []
    for question_id in most:
        seen = explorer.seen(question_id)
        answers = [(text, count) for text, count in seen if text is not None]
        without = sum(count for text, count in seen if text is None)
        questions.append(UnsolvedQuestion(question_id, unsolved[question_id].visits, without, answers[:ANSWERS]))
    return Unsolved(_by_visits(histories, unsolved), questions, len(unsolved))


def _by_visits(
    histories: Mapping[str, QuestionHistory], unsolved: Mapping[str, QuestionHistory]
) -> list[tuple[str, int, int]]:
    """Count questions by powers of two of their samples."""
    every, never = (Counter(one.visits.bit_length() for one in some.values()) for some in (histories, unsolved))
    return [(_range(bits), every[bits], never[bits]) for bits in sorted(every)]


def _range(bits: int) -> str:
    low, high = 2 ** (bits - 1), 2**bits - 1
    return str(low) if low == high else f"{low} to {high}"
