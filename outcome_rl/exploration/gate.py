"""The curriculum gate: questions that the policy has learned, or that are beyond it, do not move the policy."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from outcome_rl_kernels.counts.api import History


class Gate(NamedTuple):
    """Closed for a question with `visits` samples or more of which a share below `low` or above `high` is correct."""

    visits: int
    low: float
    high: float

    @classmethod
    def of(cls, numbers: Sequence[float] | None) -> "Gate | None":
        """Return the gate of a setting [visits, low, high], None without one.

        Raises:
            ValueError: these are no such numbers, or the gate is never closed.
        """
        if numbers is None:
            return None
        visits, low, high = numbers if len(numbers) == 3 else (0.0, 0.0, 0.0)
        if (low, high) == (0, 1):
            raise ValueError(f"gate={list(numbers)} never closes; raise low above 0 or lower high below 1")
        if not (visits >= 1 and visits == int(visits) and 0 <= low <= high <= 1):
            raise ValueError(
                "gate must be [visits, low, high] with an integer visits >= 1 and 0 <= low <= high <= 1, which leaves "
                f"out questions whose share of correct samples is below low or above high; got {list(numbers)}. "
                "[32, 0, 0.9] leaves out what is learned, [1, 0, 0] all that was solved before"
            )
        return cls(int(visits), low, high)

    def closed(self, history: History) -> Tensor:
        """Return whether each question is left out, bool in the shape of the history before the batch."""
        rate = history.successes.double() / history.visits.clamp(min=1)
        return (history.visits >= self.visits) & ((rate < self.low) | (rate > self.high))
