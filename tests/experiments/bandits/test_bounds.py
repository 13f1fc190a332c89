"""The proved quantities against enumeration, and the bounds against what they bound."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.bandits import Instance, balanced, bounds, needle

sizes_of_outcomes = st.lists(st.integers(1, 20), min_size=1, max_size=6).map(tuple)


def partition(sizes: tuple[int, ...]) -> Instance:
    return Instance(sizes, (0.5,) * len(sizes))


def first_hit_by_markov_chain(sizes: tuple[int, ...], rho: float, target: int) -> float:
    """The mean number of draws until `target` is seen: the chain on the counts of the others, from all zero.

    Draws after which 60 of the others were seen are left out; `rho` far from 0 makes them too rare to matter.
    """
    reached = {tuple(0 for _ in sizes): 1.0}
    mean = 0.0
    for _ in range(60):
        following: dict[tuple[int, ...], float] = {}
        for counts, probability in reached.items():
            mean += probability  # one more draw is made from here
            weights = [size * (1 - rho) ** count for size, count in zip(sizes, counts, strict=True)]
            for outcome, weight in enumerate(weights):
                if outcome != target and weight > 0:
                    step = tuple(count + (i == outcome) for i, count in enumerate(counts))
                    following[step] = following.get(step, 0.0) + probability * weight / sum(weights)
        reached = following
    return mean


def all_seen_by_markov_chain(sizes: tuple[int, ...]) -> Fraction:
    """The mean number of uniform draws of arms until all outcomes are seen, over the subsets that were seen."""
    K = sum(sizes)
    mean = {frozenset(range(len(sizes))): Fraction(0)}
    for left in range(1, len(sizes) + 1):
        for unseen in itertools.combinations(range(len(sizes)), left):
            seen = frozenset(range(len(sizes))) - set(unseen)
            weight = sum(sizes[i] for i in unseen)
            following = sum((sizes[i] * mean[seen | {i}] for i in unseen), Fraction(0))
            mean[seen] = (K + following) / weight
    return mean[frozenset()]


@pytest.mark.parametrize("sizes", [(3, 3), (1, 4), (1, 1, 1), (1, 2, 5)])
@pytest.mark.parametrize("rho", [0.5, 0.8, 1.0])
def test_mean_first_hit_by_enumeration(sizes: tuple[int, ...], rho: float) -> None:
    mean_M = bounds.first_hit_mean(partition(sizes), rho)
    for target in range(len(sizes)):
        assert mean_M[target] == pytest.approx(first_hit_by_markov_chain(sizes, rho, target), rel=1e-9)


def test_mean_first_hit_at_the_ends() -> None:
    instance = balanced(arms=100, outcomes=10, gap=0.5)
    np.testing.assert_allclose(bounds.first_hit_mean(instance, 0.0), 10.0)
    np.testing.assert_allclose(bounds.first_hit_mean(instance, 1.0), 5.5)  # where the paper's lemma says 1
    np.testing.assert_allclose(bounds.first_hit_mean(instance, 1e-4), 10.0, rtol=1e-3)  # the series, near its slow end
    np.testing.assert_allclose(bounds.first_hit_mean(needle(100), 1.0), [1 + 0.99, 1 + 0.01])


def test_one_outcome_is_seen_at_once() -> None:
    for rho in (0.0, 0.5, 1.0):
        assert bounds.first_hit_mean(partition((7,)), rho) == [1.0]
        assert bounds.first_hit_bound(partition((7,)), rho) == [1.0]
        assert bounds.discovery_bound(partition((7,)), rho) == 1.0


@settings(max_examples=60, deadline=None)
@given(sizes_of_outcomes, st.floats(0.05, 1.0), st.floats(0.05, 1.0))
def test_the_corrected_lemma_bounds_the_mean(sizes: tuple[int, ...], one: float, other: float) -> None:
    low, high = sorted((one, other))
    instance = partition(sizes)
    mean_at_low, mean_at_high = bounds.first_hit_mean(instance, low), bounds.first_hit_mean(instance, high)
    assert np.all(mean_at_low <= bounds.first_hit_bound(instance, low) * (1 + 1e-12))
    assert np.all(mean_at_high <= mean_at_low * (1 + 1e-12))  # more exclusion never delays
    np.testing.assert_allclose(bounds.first_hit_bound(instance, 0.0), bounds.first_hit_mean(instance, 0.0))
    np.testing.assert_allclose(bounds.first_hit_bound(instance, 1.0), bounds.first_hit_mean(instance, 1.0))


@given(st.integers(1, 40), st.floats(0.0, 1.0))
def test_the_corrected_lemma_for_outcomes_of_one_size(m: int, rho: float) -> None:
    instance = balanced(arms=3 * m, outcomes=m, gap=0.5)
    np.testing.assert_allclose(bounds.first_hit_bound(instance, rho), 1 + (m - 1) * (1 - rho / 2))


@pytest.mark.parametrize("sizes", [(1,), (2, 2), (1, 3), (1, 1, 1, 1), (1, 2, 4), (5, 1, 1, 3)])
def test_the_bound_on_seeing_all_by_enumeration(sizes: tuple[int, ...]) -> None:
    instance, exact = partition(sizes), float(all_seen_by_markov_chain(sizes))
    assert exact <= bounds.discovery_bound(instance, 0.0) * (1 + 1e-12)
    assert bounds.discovery_bound(instance, 1.0) == len(sizes)
    if len(set(sizes)) == 1:
        assert exact == pytest.approx(bounds.discovery_bound(instance, 0.0))


@pytest.mark.parametrize(("K", "T"), [(2, 1), (3, 2), (4, 4), (4, 9), (5, 3)])
def test_the_lower_bound_is_the_mean_over_all_places_of_the_good_arm(K: int, T: int) -> None:
    mean = Fraction(sum(min(T, place) for place in range(K)), K)  # bad pulls before the good arm, or T
    assert bounds.search_bound(K, T) == pytest.approx(float(mean))
    assert mean >= Fraction(K - 1, 2 * K) * min(T, K)


@pytest.mark.parametrize("K", range(2, 200, 7))
def test_half_of_the_arms_miss_more_often_than_not_but_not_by_the_printed_constant(K: int) -> None:
    assert 0.5 <= (1 - 1 / K) ** (K / 2) < math.exp(-0.5)


@pytest.mark.parametrize("T", [2, 100, 10**6])
@pytest.mark.parametrize("gap", [0.001, 0.03, 0.5, 1.0])
def test_the_bound_without_gaps_is_no_smaller_than_what_gaps_give(gap: float, T: int) -> None:
    """Regret is at most gap * T, too, so that the smaller of both is what has to be below."""
    instance = balanced(arms=10, outcomes=5, gap=gap)
    assert min(bounds.ucb_bound(instance, T), gap * T) <= bounds.gap_free_bound(5, T)


def test_soft_exclusion_pays_for_the_search() -> None:
    instance, T = Instance((1, 3), (0.75, 0.25)), 100
    search = 0.5 * (2 + 0.5 * (1.5 * 4 - 2))
    assert bounds.soft_exclusion_bound(instance, 0.5, T) == pytest.approx(search + bounds.ucb_bound(instance, T))
    assert bounds.ucb_bound(instance, T) == pytest.approx(16 * math.log(100) + 0.5 * (1 + math.pi**2 / 3))
