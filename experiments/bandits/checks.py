"""Tests of the statements of `experiments/bandits/README.md`: the paper's as printed, and their corrections.

Exact statements are computed; the others are simulated. A mean over seeds is equal to its exact value within five
standard errors, and within a bound if it exceeds the bound by at most as much. Seeds are fixed, so that a check gives
the same answer at every run.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.bandits import bounds
from experiments.bandits.algorithms import BALANCED, PARTITION_AWARE, SoftExclusion
from experiments.bandits.instances import Instance, balanced, needle
from experiments.bandits.simulate import discovery_times, simulate

STANDARD_ERRORS = 5.0
RHOS = (0.0, 0.2, 0.5, 0.9, 1.0)
# Means have no effect on discovery.
TEN_EQUAL = balanced(arms=100, outcomes=10, gap=0.5)
DOUBLING = Instance(sizes=(1, 2, 4, 8, 16), means=(0.5,) * 5)
MIXED_RHO = (1.0, 0.0, 0.5, 0.25, 0.75)  # one fraction an outcome of DOUBLING
ARMS = 30
GOOD = (1, 3, 7, 15, 29)  # arms of the optimal outcome, of ARMS; 7 is the last with t* > 0
ROUNDS = (5, 15, 30, 60)
GRID = [(K, s) for K in range(4, 121) for s in range(1, K // 4 + 1)]  # where the proof's t* is above 0
E_HALF = math.exp(-0.5)


class Check(NamedTuple):
    """A statement with its expected and simulated values; `refutes` marks one of the paper that does not hold."""

    statement: str
    expected: str
    seen: str
    passed: bool
    refutes: bool = False

    @property
    def verdict(self) -> str:
        if not self.passed:
            return "FAILED"
        return "does not hold" if self.refutes else "holds"


def run_checks(seeds: int) -> Iterator[Check]:
    """Run every check, each with `seeds` runs, at least 100 so that standard errors are meaningful.

    Raises:
        ValueError: `seeds` is below 100.
    """
    if seeds < 100:
        raise ValueError(f"seeds must be at least 100, or the standard errors say little; got {seeds}.")
    runs = np.arange(seeds)
    yield from _lower_bound_proof(runs)
    yield from _lower_bound(runs)
    yield from _balanced(runs)
    yield from _partition_aware(runs)
    yield from _first_hit(runs)
    yield from _soft_exclusion(runs)


def _lower_bound_proof(runs: NDArray[np.int64]) -> Iterator[Check]:
    found_SG = np.stack([_first_good(good, runs) for good in GOOD], axis=1)
    deviations = []
    for pulls in (1, 5, 15):
        exact_G = np.array([bounds.miss_probability(ARMS, good, pulls) for good in GOOD])
        error_G = np.sqrt(np.maximum(exact_G * (1 - exact_G), 1e-12) / len(runs))
        deviations += (np.abs((found_SG > pulls).mean(axis=0) - exact_G) / error_G).tolist()
    yield Check(
        f"lower bound, probability of no optimal arm in t pulls: K = {ARMS}, s = {_list(GOOD)}, t = 1, 5, 15",
        f"{len(deviations)} shares within {STANDARD_ERRORS:g} standard errors of prod (K-s-i)/(K-i)",
        f"worst {max(deviations):.1f}",
        max(deviations) <= STANDARD_ERRORS,
    )
    steps = [bounds.printed_step(K, s) for K, s in GRID]
    yield Check(
        "lower bound, middle step of the proof as printed: all K <= 120, s <= K/4",
        f"(1 - 2s/K)^(K/4s) >= e^-1/2 = {E_HALF:.4f}",
        f"{min(steps):.4f} to {max(steps):.4f}, below it everywhere",
        max(steps) < E_HALF,
        refutes=True,
    )
    misses = [bounds.miss_probability(K, s, K // (4 * s)) for K, s in GRID]
    yield Check(
        "lower bound, the step's conclusion: the same K and s",
        f"Pr(tau > t*) >= e^-1/2 = {E_HALF:.4f}; by the union bound >= 3/4",
        f"{min(misses):.4f} to {max(misses):.4f}",
        min(misses) >= 0.75 - 1e-12,
    )


def _lower_bound(runs: NDArray[np.int64]) -> Iterator[Check]:
    ratios = [
        bounds.search_mean(K, s, T) / bounds.printed_search_bound(K, s, T)
        for K, s in GRID
        if K % 20 == 0
        for T in (1, K // (4 * s), K // s, K)
    ]
    yield Check(
        "lower bound as printed, c = e^-1/2 / 4, where s <= K/4: K = 20, 40, ..., 120, four horizons",
        "least regret / bound >= 1",
        f"{min(ratios):.2f} to {max(ratios):.2f}",
        min(ratios) >= 1.0,
    )
    bad_S = _first_good(ARMS - 1, runs) - 1
    printed = bounds.printed_search_bound(ARMS, ARMS - 1, ARMS)
    yield Check(
        f"lower bound as printed where s is near K: K = {ARMS}, s = {ARMS - 1}, and s = K",
        f"bad pulls >= {printed:.3f}, and >= {bounds.printed_search_bound(ARMS, ARMS, ARMS):.3f}",
        f"{bad_S.mean():.3f} ± {_standard_error(bad_S):.3f}, exactly 1/K = {1 / ARMS:.3f}; exactly 0",
        bool(bad_S.mean() + STANDARD_ERRORS * _standard_error(bad_S) < printed)
        and bounds.search_mean(ARMS, ARMS, ARMS) == 0.0,
        refutes=True,
    )
    worst_search = math.inf
    for K in range(2, 121, 7):
        for s in range(1, K + 1):
            for T in {1, max(1, K // (2 * s)), max(1, K // s), K}:
                worst_search = min(worst_search, bounds.search_mean(K, s, T) - bounds.search_bound(K, s, T))
    yield Check(
        "lower bound corrected, (1 - s/K)/4 min(T, K/s): K <= 120, every s, four horizons",
        "least regret - bound >= 0",
        f"least {max(worst_search, 0.0):.3f}",
        worst_search >= -1e-12,
    )
    bound_R = np.array([bounds.search_mean(ARMS, 1, T) for T in ROUNDS])
    search_SR = np.minimum(_first_good(1, runs)[:, None] - 1, np.array(ROUNDS))
    yield Check(
        f"least regret, in gaps: search without repeats, K = {ARMS}, s = 1",
        f"{_row(bound_R)} at T = {_list(ROUNDS)}",
        _row(search_SR.mean(axis=0)),
        bool(np.all(np.abs(search_SR.mean(axis=0) - bound_R) <= STANDARD_ERRORS * _standard_error(search_SR))),
    )
    instance = needle(ARMS)
    for name, seen, algorithm in (
        ("UCB over arms", instance.singletons(), BALANCED),
        ("Algorithm 1 (on a partition that is not balanced)", instance, BALANCED),
        ("Algorithm 3, rho = 0", instance, SoftExclusion(0.0)),
    ):
        regret_SR = simulate(seen, algorithm, ROUNDS, runs).regret / instance.gaps.max()
        yield Check(
            f"lower bound: {name}, K = {ARMS}, s = 1",
            f"regret in gaps >= {_row(bound_R)}",
            _row(regret_SR.mean(axis=0)),
            bool(np.all(regret_SR.mean(axis=0) >= bound_R - STANDARD_ERRORS * _standard_error(regret_SR))),
        )
    hit_S = discovery_times(instance, PARTITION_AWARE, runs)[:, 0]
    yield Check(
        f"generalisation takes K out: Algorithm 2 finds the arm, K = {ARMS}, s = 1",
        "at most 2 draws",
        f"{hit_S.max()}",
        hit_S.max() <= 2,
    )


def _balanced(runs: NDArray[np.int64]) -> Iterator[Check]:
    deviations: list[float] = []
    for instance in (TEN_EQUAL, DOUBLING, needle(ARMS)):
        hit_SM = discovery_times(instance, BALANCED, runs)
        exact_M = bounds.balanced_first_hit_mean(instance)
        deviations += (np.abs(hit_SM.mean(axis=0) - exact_M) / _standard_error(hit_SM)).tolist()
    yield Check(
        "Algorithm 1, exact mean first hit (K+1)/(s+1): 3 partitions",
        f"{len(deviations)} means within {STANDARD_ERRORS:g} standard errors",
        f"worst {max(deviations):.1f}",
        max(deviations) <= STANDARD_ERRORS,
    )
    last_S = discovery_times(TEN_EQUAL, BALANCED, runs).max(axis=1)
    exact = bounds.balanced_discovery_mean(TEN_EQUAL)
    coupons = 10 * bounds.harmonic(10)
    yield Check(
        "Algorithm 1, all outcomes seen: m = 10, K = 100",
        f"mean {exact:.2f}, below the coupon collector's m H_m = {coupons:.2f} (lemma)",
        f"{last_S.mean():.2f} ± {_standard_error(last_S):.2f}",
        abs(last_S.mean() - exact) <= STANDARD_ERRORS * _standard_error(last_S) and exact <= coupons,
    )
    T = 1000
    regret_S = simulate(TEN_EQUAL, BALANCED, [T], runs).regret[:, 0]
    bound = min(bounds.balanced_bound(TEN_EQUAL, T), bounds.gap_free_bound(10, T) + coupons)
    yield Check(
        f"Algorithm 1, theorem: m = 10, gap 0.5, T = {T}",
        f"regret <= {bound:.0f}",
        f"{regret_S.mean():.0f}",
        bool(regret_S.mean() <= bound),
    )


def _partition_aware(runs: NDArray[np.int64]) -> Iterator[Check]:
    for instance in (TEN_EQUAL, DOUBLING):
        last_S = discovery_times(instance, PARTITION_AWARE, runs).max(axis=1)
        yield Check(
            f"Algorithm 2, all outcomes seen: sizes {_list(sorted(set(instance.sizes)))}",
            f"after m = {instance.outcomes} draws",
            f"{last_S.min()} to {last_S.max()}",
            bool(np.all(last_S == instance.outcomes)),
        )
    T = 1000
    regret_S = simulate(TEN_EQUAL, PARTITION_AWARE, [T], runs).regret[:, 0]
    bound = min(bounds.soft_exclusion_bound(TEN_EQUAL, 1.0, T), bounds.gap_free_bound(10, T) + 10)
    yield Check(
        f"Algorithm 2, theorem: m = 10, gap 0.5, T = {T}",
        f"regret <= {bound:.0f}",
        f"{regret_S.mean():.0f}",
        bool(regret_S.mean() <= bound),
    )
    with_more_arms_S = simulate(balanced(arms=100_000, outcomes=10, gap=0.5), PARTITION_AWARE, [T], runs).regret[:, 0]
    same = np.array_equal(regret_S, with_more_arms_S)
    yield Check(
        "Algorithm 2: K = 100 and K = 100,000",
        "the same regret in every run",
        "the same" if same else "not the same",
        same,
    )


def _first_hit(runs: NDArray[np.int64]) -> Iterator[Check]:
    hit_S = discovery_times(TEN_EQUAL, SoftExclusion(0.9), runs)[:, 0]
    printed, exact = bounds.printed_first_hit_bound(TEN_EQUAL, 0.9)[0], bounds.first_hit_mean(TEN_EQUAL, 0.9)[0]
    yield Check(
        "Algorithm 3, first-hit lemma as printed: m = 10 of one size, rho = 0.9",
        f"mean <= (1 - rhobar)/p = {printed:g}",
        f"{hit_S.mean():.2f} ± {_standard_error(hit_S):.2f}; exactly {exact:g}",
        bool(hit_S.mean() - STANDARD_ERRORS * _standard_error(hit_S) > printed),
        refutes=True,
    )
    deviations: list[float] = []
    excess: list[float] = []
    slack: list[float] = []
    for instance, rho in _soft_cases():
        hit_SM = discovery_times(instance, SoftExclusion(rho), runs)
        exact_M = bounds.first_hit_mean(instance, rho)
        deviations += (np.abs(hit_SM.mean(axis=0) - exact_M) / _standard_error(hit_SM)).tolist()
        excess += (exact_M - bounds.printed_first_hit_bound(instance, rho)).tolist()
        slack += (bounds.first_hit_bound(instance, rho) - exact_M).tolist()
    yield Check(
        "Algorithm 3, exact mean first hit: 3 partitions, 5 rho and one rho_o each",
        f"{len(deviations)} means within {STANDARD_ERRORS:g} standard errors",
        f"worst {max(deviations):.1f}",
        max(deviations) <= STANDARD_ERRORS,
    )
    yield Check(
        "Algorithm 3, first-hit lemma corrected: the same cases",
        "(1 - rhobar)/p <= exact mean <= (1 - rhobar)/p + sum of the other rho",
        f"above the lower by {max(min(excess), 0.0):.2f} to {max(excess):.2f}",
        min(excess) >= -1e-9 and min(slack) >= -1e-9,
    )


def _soft_exclusion(runs: NDArray[np.int64]) -> Iterator[Check]:
    excesses = []
    for instance, rho in _soft_cases():
        last_S = discovery_times(instance, SoftExclusion(rho), runs).max(axis=1)
        excess = last_S.mean() - bounds.discovery_bound(instance, rho)
        excesses.append(float(excess / max(_standard_error(last_S), 1e-12)))
    yield Check(
        "Algorithm 3, all outcomes seen: the same cases",
        f"bound on the mean not passed by {STANDARD_ERRORS:g} standard errors",
        f"worst {max(excesses):+.1f}",
        max(excesses) <= STANDARD_ERRORS,
    )
    T, instance = 1000, Instance(sizes=(1, 49, 50), means=(0.9, 0.4, 0.2))
    mean_R = np.array([simulate(instance, SoftExclusion(rho), [T], runs).regret.mean() for rho in RHOS])
    bound_R = np.array([bounds.soft_exclusion_bound(instance, rho, T) for rho in RHOS])
    yield Check(
        f"Algorithm 3, regret: sizes 1, 49, 50, T = {T}, rho = {_list(RHOS)}",
        f"regret <= {_row(bound_R)}",
        _row(mean_R),
        bool(np.all(mean_R <= bound_R)),
    )


def _soft_cases() -> Iterator[tuple[Instance, float | tuple[float, ...]]]:
    for instance in (TEN_EQUAL, DOUBLING, needle(ARMS)):
        yield from ((instance, rho) for rho in RHOS)
    yield DOUBLING, MIXED_RHO


def _first_good(good: int, runs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the pull, without repeats, that first finds one of `good` arms among ARMS, (S,)."""
    return discovery_times(needle(ARMS, good), BALANCED, runs)[:, 0]


def _standard_error(values: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard error of the mean over the first axis."""
    return np.asarray(values.std(axis=0, ddof=1) / math.sqrt(len(values)))


def _row(values: NDArray[np.float64]) -> str:
    return ", ".join(f"{value:.0f}" if value >= 100 else f"{value:.1f}" for value in values)


def _list(values: tuple[float, ...] | list[int]) -> str:
    return ", ".join(f"{value:g}" for value in values)
