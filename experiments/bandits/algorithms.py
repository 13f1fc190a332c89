"""Three algorithms with one scheme: search until each outcome was seen once, then play UCB1 over outcomes.

They differ in the search, that is in the weight of every outcome at each draw:

- partition-aware outcome UCB knows which arm has which outcome and draws an unseen outcome;
- balanced outcome UCB draws arms uniformly, so an outcome with more arms comes up more often;
- soft-exclusion outcome UCB draws arms that are less likely the more often their outcome was seen, by a factor
  1 - rho each time. rho is the generalisation from one arm to others with the same outcome:
  rho = 0 is balanced outcome UCB, rho = 1 never draws an outcome twice.

Plain UCB over arms is partition-aware UCB on `instance.singletons()`.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Algorithm(Protocol):
    """Search rule: weights (S, M) >= 0 from `size_M` and `count_SM`, positive for unseen outcomes."""

    def weights(self, size_M: NDArray[np.float64], count_SM: NDArray[np.float64]) -> NDArray[np.float64]: ...


@dataclass(frozen=True)
class PartitionAware:
    """Draw an unseen outcome, each with the same probability."""

    def weights(self, size_M: NDArray[np.float64], count_SM: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(count_SM == 0, 1.0, 0.0)


@dataclass(frozen=True)
class SoftExclusion:
    """Draw an arm of outcome i with probability proportional to size_i * (1 - rho)^count_i.

    Raises:
        ValueError: `rho` is outside [0, 1].
    """

    rho: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.rho <= 1.0:
            raise ValueError(f"rho must be in [0, 1]: 0 excludes nothing, 1 excludes seen outcomes; got {self.rho}.")

    def weights(self, size_M: NDArray[np.float64], count_SM: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(size_M * (1.0 - self.rho) ** count_SM)


BALANCED = SoftExclusion(rho=0.0)


def ucb(count_SM: NDArray[np.float64], sum_SM: NDArray[np.float64], step: int) -> NDArray[np.float64]:
    """Return the UCB1 index of outcomes that were all seen: `sum / count + sqrt(2 ln(step) / count)`, shape (S, M).

    Source: Auer, Cesa-Bianchi and Fischer 2002, "Finite-time analysis of the multiarmed bandit problem", figure 1.
    """
    return np.asarray(sum_SM / count_SM + np.sqrt(2.0 * np.log(step) / count_SM))
