"""The user's reward function, which shapes advantages; outcomes still follow only from the answers."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from outcome_rl.grpo import distributed
from outcome_rl.grpo.types import Problem
from outcome_rl.outcomes.functions import load_function


class RewardFunction:
    """A function `(response, example) -> number`, called on rank zero for one response after another.

    `response` is the text without special tokens, and `example` the row of the data, with all its columns.
    """

    def __init__(self, name: str) -> None:
        """Import the function that `reward.function` names.

        Raises:
            ValueError: there is no such function, or it does not take two arguments.
        """
        self._name = name
        try:
            self._call: Callable[[str, Mapping[str, Any]], Any] = load_function(name, "(response, example)")
        except ValueError as error:
            raise ValueError(f"reward.function: {error}") from error

    def __call__(self, responses: Sequence[str], problems: Sequence[Problem]) -> list[float]:
        """Return the reward of each response to its problem, the same on all ranks; all of them must call it.

        Raises:
            RuntimeError: the function raised an exception, which is the cause.
            ValueError: it returned no finite number.
        """
        pairs = zip(responses, problems, strict=True)
        return distributed.on_rank_zero(lambda: [self._reward(response, problem) for response, problem in pairs])

    def _reward(self, response: str, problem: Problem) -> float:
        where = f"reward.function={self._name}, question {problem.id!r}"
        try:
            value = self._call(response, problem.example)
        except Exception as error:
            raise RuntimeError(f"{where}: {type(error).__name__}: {error}. It got the response {response!r}") from error
        try:
            reward = float(value)
        except (TypeError, ValueError):
            reward = math.nan
        if not math.isfinite(reward):
            raise ValueError(f"{where}: must return a finite number; got {value!r}. Return 0.0 for a bad response")
        return reward
