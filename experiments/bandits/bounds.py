"""Exact values and bounds for outcome-partition bandits; `experiments/bandits/README.md` has the proofs.

Throughout `p_i = sizes[i] / K` is the share of outcome i, and `q = 1 - rho`.
"""

import math

import numpy as np
from numpy.typing import NDArray

from experiments.bandits.instances import Instance


def first_hit_mean(instance: Instance, rho: float) -> NDArray[np.float64]:
    """Return the exact mean of the draw at which soft exclusion first sees each outcome, shape (M,).

    `1 + sum_{j != i} sum_{k >= 1} prod_{n < k} p_j q^n / (p_j q^n + p_i)`, which is `1 / p_i` at `rho = 0` and
    `1 + sum_{j != i} p_j / (p_i + p_j)` at `rho = 1`. The series is summed until its terms no longer count in float64.
    """
    p_M = _shares(instance)
    if rho == 0.0:
        return 1.0 / p_M
    rate_MM = np.where(np.eye(len(p_M), dtype=bool), 0.0, p_M[None, :])  # (i, j): rate of j before the first i
    term_MM = np.ones_like(rate_MM)
    mean_M = np.ones_like(p_M)
    while term_MM.max() > 1e-17:
        term_MM = term_MM * rate_MM / (rate_MM + p_M[:, None])
        mean_M += term_MM.sum(axis=1)
        rate_MM = rate_MM * (1.0 - rho)
    return mean_M


def first_hit_bound(instance: Instance, rho: float) -> NDArray[np.float64]:
    """Bound the mean first hits of soft exclusion from above, shape (M,); exact at `rho` 0 and 1.

    `1 + sum_{j != i} p_j (p_i + q p_j) / (p_i (p_i + p_j))`; for m outcomes of one size `1 + (m - 1)(1 - rho/2)`.
    """
    p_M = _shares(instance)
    p_i, p_j = p_M[:, None], p_M[None, :]
    term_MM = p_j * (p_i + (1.0 - rho) * p_j) / (p_i * (p_i + p_j))
    np.fill_diagonal(term_MM, 0.0)
    return np.asarray(1.0 + term_MM.sum(axis=1))


def discovery_bound(instance: Instance, rho: float) -> float:
    """Bound the mean number of draws after which soft exclusion has seen every outcome.

    `m + (1 - rho) (H_m / p_min - m)` with `H_m = 1 + 1/2 + ... + 1/m`; equal to the mean at `rho = 1`, and for outcomes
    of one size at `rho = 0`.
    """
    m = instance.outcomes
    harmonic = math.fsum(1.0 / k for k in range(1, m + 1))
    return m + (1.0 - rho) * (harmonic / float(_shares(instance).min()) - m)


def search_bound(arms: int, horizon: int) -> float:
    """Bound from below the mean regret on `needle(arms)`, arms shuffled, without knowledge of unpulled arms.

    `sum_{t=1}^{T} max(0, 1 - t/K)`, at least `(1 - 1/K)/2 * min(T, K)`; reached by never pulling a bad arm twice.
    """
    T = min(horizon, arms)
    return T - T * (T + 1) / (2 * arms)


def ucb_bound(instance: Instance, horizon: int) -> float:
    """Bound the mean pseudo-regret of UCB1 over outcomes after all outcomes were found.

    `sum_{gap_i > 0} 8 ln(T) / gap_i + (1 + pi^2/3) gap_i` (Auer et al. 2002, theorem 1).
    """
    gaps = [float(gap) for gap in instance.gaps if gap > 0]
    return math.fsum(8 * math.log(horizon) / gap + (1 + math.pi**2 / 3) * gap for gap in gaps)


def gap_free_bound(outcomes: int, horizon: int) -> float:
    """Bound as `ucb_bound`, for all gaps: `sqrt(32 m T ln T) + (1 + pi^2/3) m`."""
    return math.sqrt(32 * outcomes * horizon * math.log(horizon)) + (1 + math.pi**2 / 3) * outcomes


def soft_exclusion_bound(instance: Instance, rho: float, horizon: int) -> float:
    """Bound the mean pseudo-regret of soft-exclusion outcome UCB; each draw of the search costs a whole gap."""
    return float(instance.gaps.max()) * discovery_bound(instance, rho) + ucb_bound(instance, horizon)


def _shares(instance: Instance) -> NDArray[np.float64]:
    return np.array(instance.sizes, np.float64) / instance.arms
