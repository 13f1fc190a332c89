"""Tests by simulation of the statements of `experiments/bandits/README.md`, and of two of the paper that do not hold.

A mean over seeds is equal to its exact value within five standard errors, and within a bound if it exceeds the bound by
at most as much. Seeds are fixed, so that a check gives the same answer at every run.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.bandits import bounds
from experiments.bandits.algorithms import BALANCED, PartitionAware, SoftExclusion
from experiments.bandits.instances import Instance, balanced, needle
from experiments.bandits.simulate import discovery_times, simulate

STANDARD_ERRORS = 5.0
RHOS = (0.0, 0.25, 0.5, 0.9, 1.0)
# Means have no effect on discovery.
TEN_EQUAL = balanced(arms=100, outcomes=10, gap=0.5)
DOUBLING = Instance(sizes=(1, 2, 4, 8, 16), means=(0.5,) * 5)
NEEDLE = needle(30)
ROUNDS = (15, 30, 60)  # K/2, K and 2 K of the needle


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
    yield _printed_first_hit(runs)
    yield from _first_hits(runs)
    yield _discovery(runs)
    yield _printed_miss(runs)
    yield from _lower_bound(runs)
    yield from _partition_aware(runs)
    yield _soft_exclusion(runs)


def _printed_first_hit(runs: NDArray[np.int64]) -> Check:
    hit_S = discovery_times(TEN_EQUAL, SoftExclusion(1.0), runs)[:, 0]
    mean, error = float(hit_S.mean()), float(_standard_error(hit_S))
    return Check(
        "first-hit lemma as printed: m = 10 of one size, rho = 1",
        "mean <= 1",
        f"{mean:.2f} ± {error:.2f}; exactly 5.5",
        abs(mean - 5.5) <= STANDARD_ERRORS * error and mean > 1.0 + STANDARD_ERRORS * error,
        refutes=True,
    )


def _first_hits(runs: NDArray[np.int64]) -> Iterator[Check]:
    deviations: list[float] = []
    ratios: list[float] = []
    for instance in (TEN_EQUAL, DOUBLING, NEEDLE):
        for rho in RHOS:
            hit_SM = discovery_times(instance, SoftExclusion(rho), runs)
            exact_M = bounds.first_hit_mean(instance, rho)
            deviations += (np.abs(hit_SM.mean(axis=0) - exact_M) / _standard_error(hit_SM)).tolist()
            ratios += (exact_M / bounds.first_hit_bound(instance, rho)).tolist()
    yield Check(
        "first hit of soft exclusion, exact mean: 3 partitions, 5 rho",
        f"{len(deviations)} means within {STANDARD_ERRORS:g} standard errors",
        f"worst {max(deviations):.1f}",
        max(deviations) <= STANDARD_ERRORS,
    )
    yield Check(
        "first-hit lemma corrected: the same cases",
        "exact mean / bound <= 1",
        f"{min(ratios):.3f} to {max(ratios):.3f}",
        max(ratios) <= 1.0 + 1e-12,
    )


def _discovery(runs: NDArray[np.int64]) -> Check:
    excesses = []
    for instance in (TEN_EQUAL, DOUBLING, NEEDLE):
        for rho in RHOS[:-1]:
            last_S = discovery_times(instance, SoftExclusion(rho), runs).max(axis=1)
            excess = last_S.mean() - bounds.discovery_bound(instance, rho)
            excesses.append(float(excess / _standard_error(last_S)))
    without_repeats_S = discovery_times(TEN_EQUAL, SoftExclusion(1.0), runs).max(axis=1)
    return Check(
        "all outcomes seen: 3 partitions, 5 rho",
        f"bound on the mean not passed by {STANDARD_ERRORS:g} standard errors; rho = 1 takes m draws",
        f"worst {max(excesses):+.1f}; {without_repeats_S.min()} to {without_repeats_S.max()} draws for m = 10",
        max(excesses) <= STANDARD_ERRORS and bool(np.all(without_repeats_S == TEN_EQUAL.outcomes)),
    )


def _printed_miss(runs: NDArray[np.int64]) -> Check:
    K = NEEDLE.arms
    missed_S = discovery_times(NEEDLE.singletons(), PartitionAware(), runs)[:, 0] > K // 2
    with_repeats = (1 - 1 / K) ** (K / 2)
    off = abs(float(missed_S.mean()) - 0.5) / math.sqrt(0.25 / len(runs))
    return Check(
        f"lower bound's proof as printed: good arm missed in K/2 pulls, K = {K}",
        f"probability >= e^-1/2 = {math.exp(-0.5):.3f}",
        f"{missed_S.mean():.3f} without repeats, exactly 1/2; with repeats exactly {with_repeats:.3f}",
        off <= STANDARD_ERRORS and with_repeats < math.exp(-0.5),
        refutes=True,
    )


def _lower_bound(runs: NDArray[np.int64]) -> Iterator[Check]:
    K = NEEDLE.arms
    bound_R = np.array([bounds.search_bound(K, T) for T in ROUNDS])
    found_S = discovery_times(NEEDLE.singletons(), PartitionAware(), runs)[:, 0]
    search_SR = np.minimum(found_S[:, None] - 1, np.array(ROUNDS))
    yield Check(
        f"lower bound corrected: search without repeats, K = {K}",
        f"regret = {_row(bound_R)} at T = K/2, K, 2 K",
        _row(search_SR.mean(axis=0)),
        bool(np.all(np.abs(search_SR.mean(axis=0) - bound_R) <= STANDARD_ERRORS * _standard_error(search_SR))),
    )
    for name, instance, algorithm in (
        ("balanced outcome UCB", NEEDLE, BALANCED),
        ("UCB over arms", NEEDLE.singletons(), PartitionAware()),
    ):
        regret_SR = simulate(instance, algorithm, ROUNDS, runs).regret
        yield Check(
            f"lower bound corrected: {name}, K = {K}",
            f"regret >= {_row(bound_R)}",
            _row(regret_SR.mean(axis=0)),
            bool(np.all(regret_SR.mean(axis=0) >= bound_R - STANDARD_ERRORS * _standard_error(regret_SR))),
        )
    regret_SR = simulate(NEEDLE, SoftExclusion(1.0), ROUNDS, runs).regret
    yield Check(
        f"no K with generalisation: soft exclusion, rho = 1, K = {K}",
        f"regret < {_row(bound_R)}",
        _row(regret_SR.mean(axis=0)),
        bool(np.all(regret_SR.mean(axis=0) < bound_R - STANDARD_ERRORS * _standard_error(regret_SR))),
    )


def _partition_aware(runs: NDArray[np.int64]) -> Iterator[Check]:
    T = 1000
    regret_S = simulate(TEN_EQUAL, PartitionAware(), [T], runs).regret[:, 0]
    bound = min(bounds.ucb_bound(TEN_EQUAL, T), bounds.gap_free_bound(TEN_EQUAL.outcomes, T))
    yield Check(
        f"partition-aware UCB: m = 10, gap 0.5, T = {T}",
        f"regret <= {bound:.0f}",
        f"{regret_S.mean():.0f}",
        bool(regret_S.mean() <= bound),
    )
    with_more_arms_S = simulate(balanced(arms=100_000, outcomes=10, gap=0.5), PartitionAware(), [T], runs).regret[:, 0]
    same = np.array_equal(regret_S, with_more_arms_S)
    yield Check(
        "partition-aware UCB: K = 100 and K = 100,000",
        "the same regret in every run",
        "the same" if same else "not the same",
        same,
    )


def _soft_exclusion(runs: NDArray[np.int64]) -> Check:
    T, instance = 1000, Instance(sizes=(1, 49, 50), means=(0.9, 0.4, 0.2))
    mean_R = np.array([simulate(instance, SoftExclusion(rho), [T], runs).regret.mean() for rho in RHOS])
    bound_R = np.array([bounds.soft_exclusion_bound(instance, rho, T) for rho in RHOS])
    return Check(
        f"soft-exclusion UCB: sizes 1, 49, 50, T = {T}, rho = {', '.join(f'{rho:g}' for rho in RHOS)}",
        f"regret <= {_row(bound_R)}",
        _row(mean_R),
        bool(np.all(mean_R <= bound_R)),
    )


def _standard_error(values: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard error of the mean over the first axis."""
    return np.asarray(values.std(axis=0, ddof=1) / math.sqrt(len(values)))


def _row(values: NDArray[np.float64]) -> str:
    return ", ".join(f"{value:.0f}" if value >= 100 else f"{value:.1f}" for value in values)
