"""Reward of verl's responses: 1 for a final answer that math-verify finds equal to the gold answer, else 0."""

from typing import Any

from outcome_rl import extract_answer
from outcome_rl.outcomes.grading import shared_pool


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> float:
    """Score one response, as verl's reward manager calls it."""
    answer = extract_answer(solution_str)
    return float(answer is not None and shared_pool().vote([(ground_truth, answer.text)]) == ["equal"])
