"""Exact values and bounds for outcome-partition bandits: the paper's as printed, and corrected.

`experiments/bandits/README.md` has statements and proofs. Throughout `p_i = sizes[i] / K` is the share of outcome i.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from experiments.bandits.algorithms import per_outcome
from experiments.bandits.instances import Instance

Rho = float | Sequence[float]
PRINTED_CONSTANT = math.exp(-0.5) / 4  # c of the lower bound, in its proof


def first_hit_mean(instance: Instance, rho: Rho) -> NDArray[np.float64]:
    """Return the exact mean of the draw at which Algorithm 3 first sees each outcome, shape (M,).

    `1 + sum_{j != i} p_j (p_i + (1 - rho_j) p_j) / (p_i (p_i + p_j))`, which is the printed bound plus
    `sum_{j != i} rho_j p_j / (p_i + p_j)`.
    """
    return printed_first_hit_bound(instance, rho) + _others(instance, rho)


def printed_first_hit_bound(instance: Instance, rho: Rho) -> NDArray[np.float64]:
    """Return the bound that the paper's lemma on the first hit prints as an upper one, `(1 - rhobar_i) / p_i`, (M,).

    `rhobar_i = sum_{j != i} rho_j p_j`. It is a lower bound; the mean is above it wherever a `rho_j` is not 0.
    """
    p_M = shares(instance)
    excluded_M = per_outcome(rho, len(p_M)) * p_M
    return np.asarray((1.0 - (excluded_M.sum() - excluded_M)) / p_M)


def first_hit_bound(instance: Instance, rho: Rho) -> NDArray[np.float64]:
    """Bound the mean first hits from above, the lemma corrected: `(1 - rhobar_i) / p_i + sum_{j != i} rho_j`, (M,)."""
    rho_M = per_outcome(rho, instance.outcomes)
    return np.asarray(printed_first_hit_bound(instance, rho) + (rho_M.sum() - rho_M))


def discovery_bound(instance: Instance, rho: Rho) -> float:
    """Bound the mean number of draws after which Algorithm 3 has seen every outcome.

    `m + (1 - min rho) (H_m / p_min - m)` with `H_m = 1 + 1/2 + ... + 1/m`; equal to the mean at `rho = 1`, and for
    outcomes of one size at `rho = 0`, the coupon collector's `m H_m`.
    """
    m = instance.outcomes
    return m + (1.0 - float(np.min(rho))) * (harmonic(m) / float(shares(instance).min()) - m)


def balanced_first_hit_mean(instance: Instance) -> NDArray[np.float64]:
    """Return the exact mean of the draw at which Algorithm 1 first sees each outcome: `(K + 1) / (size + 1)`, (M,)."""
    return (instance.arms + 1.0) / (np.array(instance.sizes, np.float64) + 1.0)


def balanced_discovery_mean(instance: Instance) -> float:
    """Return the exact mean number of draws after which Algorithm 1 has seen every outcome of a balanced partition.

    By inclusion and exclusion over the outcomes that are waited for, each set of k being first hit after
    `(K + 1) / (k K/m + 1)` draws: `sum_k (-1)^(k+1) C(m, k) (K + 1) / (k K/m + 1)`.

    Raises:
        ValueError: the outcomes differ in size.
    """
    if len(set(instance.sizes)) > 1:
        raise ValueError(f"sizes must be equal, as Algorithm 1 assumes; got {instance.sizes}.")
    m, size = instance.outcomes, instance.sizes[0]
    terms = (Fraction((-1) ** (k + 1) * math.comb(m, k), k * size + 1) for k in range(1, m + 1))
    return float((instance.arms + 1) * sum(terms))  # exact: the terms are large and cancel


def harmonic(m: int) -> float:
    """Return `H_m = 1 + 1/2 + ... + 1/m`; the coupon collector needs `m H_m <= m (ln m + 1)` draws on average."""
    return math.fsum(1.0 / k for k in range(1, m + 1))


def miss_probability(arms: int, good: int, pulls: int) -> float:
    """Return Pr(tau > t): `pulls` arms drawn without replacement hold no `good` one; `prod_i (K-s-i)/(K-i)`."""
    return float(_misses(arms, good)[min(pulls, arms)])


def search_mean(arms: int, good: int, horizon: int) -> float:
    """Return E[min(T, tau - 1)], the least mean number of bad pulls of a learner that knows nothing of unpulled arms.

    `sum_{t=1}^{T} Pr(tau > t)`, over all placements of the good arms; `(K - s) / (s + 1)` for T >= K. Reached by never
    pulling an arm twice before a good one is found.
    """
    return float(_misses(arms, good)[1 : horizon + 1].sum())


def printed_search_bound(arms: int, good: int, horizon: int) -> float:
    """Return the lower bound on `search_mean` that the paper's theorem prints: `c min(T, K/s)`, c = e^(-1/2)/4."""
    return PRINTED_CONSTANT * min(horizon, arms / good)


def search_bound(arms: int, good: int, horizon: int) -> float:
    """Bound `search_mean` from below, the theorem corrected: `(1 - s/K)/4 min(T, K/s)`.

    It is at least `3/16 min(T, K/s)` where s <= K/4.
    """
    return (1.0 - good / arms) / 4.0 * min(horizon, arms / good)


def printed_step(arms: int, good: int) -> float:
    """Return the middle of the proof's chain `Pr(tau > t*) >= (1 - 2s/K)^(K/4s) >= e^(-1/2)`, for s <= K/2."""
    return float((1.0 - 2.0 * good / arms) ** (arms / (4.0 * good)))


def ucb_bound(instance: Instance, horizon: int) -> float:
    """Bound the mean pseudo-regret of UCB1 over outcomes after all outcomes were found.

    `sum_{gap_i > 0} 8 ln(T) / gap_i + (1 + pi^2/3) gap_i` (Auer et al. 2002, theorem 1).
    """
    gaps = [float(gap) for gap in instance.gaps if gap > 0]
    return math.fsum(8 * math.log(horizon) / gap + (1 + math.pi**2 / 3) * gap for gap in gaps)


def gap_free_bound(outcomes: int, horizon: int) -> float:
    """Bound as `ucb_bound`, for all gaps: `sqrt(32 m T ln T) + (1 + pi^2/3) m`."""
    return math.sqrt(32 * outcomes * horizon * math.log(horizon)) + (1 + math.pi**2 / 3) * outcomes


def balanced_bound(instance: Instance, horizon: int) -> float:
    """Bound the mean pseudo-regret of Algorithm 1 on a balanced partition: the largest gap times `m H_m`, plus
    `ucb_bound`.
    """
    return float(instance.gaps.max()) * instance.outcomes * harmonic(instance.outcomes) + ucb_bound(instance, horizon)


def soft_exclusion_bound(instance: Instance, rho: Rho, horizon: int) -> float:
    """Bound the mean pseudo-regret of Algorithm 3; each draw of the search costs at most the largest gap."""
    return float(instance.gaps.max()) * discovery_bound(instance, rho) + ucb_bound(instance, horizon)


def _misses(arms: int, good: int) -> NDArray[np.float64]:
    """Return Pr(tau > t) for t = 0, 1, ..., K."""
    drawn = np.arange(arms)
    return np.concatenate([[1.0], np.cumprod(np.maximum(arms - good - drawn, 0) / (arms - drawn))])


def _others(instance: Instance, rho: Rho) -> NDArray[np.float64]:
    """Return `sum_{j != i} rho_j p_j / (p_i + p_j)`, shape (M,)."""
    p_M = shares(instance)
    term_MM = per_outcome(rho, len(p_M)) * p_M / (p_M[:, None] + p_M)
    np.fill_diagonal(term_MM, 0.0)
    return np.asarray(term_MM.sum(axis=1))


def shares(instance: Instance) -> NDArray[np.float64]:
    return np.array(instance.sizes, np.float64) / instance.arms
