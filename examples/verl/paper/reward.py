"""Reward of verl's responses: 1 for a final answer that math-verify finds equal to the gold answer, else 0."""

from typing import Any

from outcome_rl.math_verify import parse, verify


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> float:
    """Score one response, as verl's reward manager calls it."""
    return float(verify(parse(f"\\boxed{{{ground_truth}}}"), parse(solution_str)))
