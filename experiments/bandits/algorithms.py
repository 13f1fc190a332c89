"""The paper's three algorithms as printed (appendix A): look for outcomes until each was seen, then UCB over outcomes.

They search alike, drawing an arm uniformly from a pool U that is all arms at first, and differ in what leaves U:

- Algorithm 1, balanced outcome UCB: the arm that was drawn;
- Algorithm 2, partition-aware UCB: at the first sighting of an outcome all its arms ("pick any arm of U" is a uniform
  draw here);
- Algorithm 3, soft-exclusion outcome UCB: at the first sighting of outcome o a fraction rho_o of its arms, once; arms
  that stay may be drawn again. With rho_o = 1 for all o it is Algorithm 2.

UCB over arms, without outcomes, is any of the first two on `instance.singletons()`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Algorithm(Protocol):
    """A search for outcomes: how many arms of each outcome leave the pool after its draw."""

    def leaving(self, size_M: Floats, outcome_S: NDArray[np.int64], is_new_S: NDArray[np.bool_]) -> Floats:
        """Return the arms (S,) of the drawn outcome that leave the pool; `is_new`: it was drawn for the first time."""
        ...


@dataclass(frozen=True)
class Balanced:
    """Algorithm 1: no arm is drawn twice."""

    def leaving(self, size_M: Floats, outcome_S: NDArray[np.int64], is_new_S: NDArray[np.bool_]) -> Floats:
        return np.ones(len(outcome_S))


@dataclass(frozen=True)
class SoftExclusion:
    """Algorithm 3: at the first sighting of an outcome a fraction of its arms leaves the pool.

    Args:
        rho: fraction in [0, 1], one for all outcomes or one each; 0 excludes nothing, 1 all. Where `rho * size` is no
            whole number the pool keeps a fraction of an arm.
    """

    rho: float | tuple[float, ...]

    def leaving(self, size_M: Floats, outcome_S: NDArray[np.int64], is_new_S: NDArray[np.bool_]) -> Floats:
        return np.asarray(is_new_S * (size_M * per_outcome(self.rho, len(size_M)))[outcome_S])


BALANCED = Balanced()
PARTITION_AWARE = SoftExclusion(rho=1.0)


def per_outcome(rho: float | Sequence[float], outcomes: int) -> Floats:
    """Return the fractions rho_o as (M,)."""
    return np.broadcast_to(np.array(rho, np.float64), (outcomes,))


def ucb(count_SM: Floats, sum_SM: Floats, step: int) -> Floats:
    """Return the UCB1 index of outcomes that were all seen: `sum / count + sqrt(2 ln(step) / count)`, shape (S, M).

    Source: the paper's algorithms 1 to 3; Auer, Cesa-Bianchi and Fischer 2002, figure 1.
    """
    return np.asarray(sum_SM / count_SM + np.sqrt(2.0 * np.log(step) / count_SM))
