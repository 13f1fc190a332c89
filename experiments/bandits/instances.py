"""Bandits with K arms in m outcomes; the reward of an arm is that of its outcome.

Letters in names and shapes: K arms, M outcomes, S seeds, R rounds that are recorded.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Instance:
    """An outcome-partition bandit: outcome `i` has `sizes[i]` arms, each paying 1 with probability `means[i]`, else 0.

    Args:
        sizes: number of arms of each outcome, m integers >= 1 with sum K.
        means: mean reward of each outcome, m numbers in [0, 1]; 0 and 1 are rewards without noise.
    """

    sizes: tuple[int, ...]
    means: tuple[float, ...]

    @property
    def arms(self) -> int:
        return sum(self.sizes)

    @property
    def outcomes(self) -> int:
        return len(self.sizes)

    @property
    def gaps(self) -> NDArray[np.float64]:
        """Distance of each outcome's mean from the best, shape (M,)."""
        mean_M = np.array(self.means, dtype=np.float64)
        return np.asarray(mean_M.max() - mean_M)

    def singletons(self) -> "Instance":
        """Return the same arms with an outcome each: the view of a learner that ignores outcomes."""
        means = tuple(mean for size, mean in zip(self.sizes, self.means, strict=True) for _ in range(size))
        return Instance(sizes=(1,) * self.arms, means=means)


def balanced(arms: int, outcomes: int, gap: float) -> Instance:
    """Make m outcomes of K/m arms each; the first has mean (1 + gap)/2, the others (1 - gap)/2.

    Args:
        arms: K, a multiple of `outcomes`.
        outcomes: m >= 1.
        gap: distance of the first mean from the others, in [0, 1].
    """
    return Instance(sizes=(arms // outcomes,) * outcomes, means=((1 + gap) / 2,) + ((1 - gap) / 2,) * (outcomes - 1))


def needle(arms: int, good: int = 1, gap: float = 0.5) -> Instance:
    """Make the instance of the paper's lower bound: `good` arms have mean 1/2 + gap, the other outcome has mean 1/2.

    Args:
        arms: K >= 2.
        good: s, arms of the optimal outcome, 1 to K; at K there is no other outcome.
        gap: Delta in [0, 1/2].
    """
    sizes, means = (good, arms - good), (0.5 + gap, 0.5)
    return Instance(sizes, means) if good < arms else Instance(sizes[:1], means[:1])
