"""The paper's statements, their corrections and the exact means, against enumeration from the paper's own text.

The statements on the lower bound are those of `checks.py`, which test_command.py runs.
"""

import itertools
import math
from fractions import Fraction

import bandit_oracle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.bandits import Instance, balanced, bounds

sizes_of_outcomes = st.lists(st.integers(1, 20), min_size=1, max_size=6).map(tuple)
PARTITIONS = [(3, 3), (1, 4), (1, 1, 1), (1, 2, 5), (4, 1, 3, 2)]


def partition(sizes: tuple[int, ...]) -> Instance:
    return Instance(sizes, (0.5,) * len(sizes))


def fractions(rho: tuple[float, ...]) -> list[Fraction]:
    return [Fraction(value).limit_denominator(1000) for value in rho]


@pytest.mark.parametrize("sizes", PARTITIONS)
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8, 1.0, "mixed"])
def test_mean_first_hit_of_algorithm_3_by_enumeration(sizes: tuple[int, ...], rho: float | str) -> None:
    each = (0.25, 1.0, 0.0, 0.5)[: len(sizes)] if rho == "mixed" else (float(rho),) * len(sizes)
    expected = bandit_oracle.mean_first_hits(3, sizes, fractions(each))
    np.testing.assert_allclose(bounds.first_hit_mean(partition(sizes), each), [float(mean) for mean in expected])
    if rho != "mixed":
        one = bounds.first_hit_mean(partition(sizes), float(rho))
        np.testing.assert_array_equal(one, bounds.first_hit_mean(partition(sizes), each))


@pytest.mark.parametrize("sizes", PARTITIONS)
def test_mean_first_hit_of_algorithm_1_by_enumeration(sizes: tuple[int, ...]) -> None:
    expected = bandit_oracle.mean_first_hits(1, sizes)
    np.testing.assert_allclose(bounds.balanced_first_hit_mean(partition(sizes)), [float(mean) for mean in expected])


@pytest.mark.parametrize(("size", "m"), [(1, 1), (1, 4), (2, 3), (3, 3), (5, 2)])
def test_mean_discovery_of_algorithm_1_by_enumeration(size: int, m: int) -> None:
    mean = bounds.balanced_discovery_mean(partition((size,) * m))
    assert mean == pytest.approx(float(bandit_oracle.mean_discovery(1, (size,) * m)))


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 60))
def test_the_coupling_lemma(m: int, size: int) -> None:
    """E[tau_disc] <= m H_m <= m (log m + 1); with ever more arms an outcome it is the coupon collector's."""
    mean = bounds.balanced_discovery_mean(partition((size,) * m))
    collector = m * bounds.harmonic(m)
    assert m <= mean * (1 + 1e-12)
    assert mean <= collector * (1 + 1e-12)
    assert collector <= m * (math.log(m) + 1) + 1e-9
    assert bounds.balanced_discovery_mean(partition((10**7,) * m)) == pytest.approx(collector, rel=1e-3)


def test_unequal_outcomes_have_no_balanced_mean() -> None:
    with pytest.raises(ValueError, match=r"sizes must be equal.* got \(1, 2\)"):
        bounds.balanced_discovery_mean(partition((1, 2)))


@settings(max_examples=100, deadline=None)
@given(sizes_of_outcomes, st.data())
def test_the_printed_lemma_is_a_lower_bound_and_the_corrected_one_an_upper(
    sizes: tuple[int, ...], data: st.DataObject
) -> None:
    rho = tuple(data.draw(st.floats(0.0, 1.0)) for _ in sizes)
    instance, m = partition(sizes), len(sizes)
    mean, printed = bounds.first_hit_mean(instance, rho), bounds.printed_first_hit_bound(instance, rho)
    corrected = bounds.first_hit_bound(instance, rho)
    assert np.all(printed <= mean * (1 + 1e-12))
    assert np.all(mean <= corrected * (1 + 1e-12))
    assert np.all(corrected - printed <= m - 1 + 1e-9)
    p = np.array(sizes) / sum(sizes)
    for i in range(m):  # the lemma's formula, spelt out
        rho_bar = sum(rho[o] * p[o] for o in range(m) if o != i)
        assert printed[i] == pytest.approx((1 - rho_bar) / p[i])
        # Strictly above wherever another outcome is excluded at all.
        if m > 1 and max(rho[o] for o in range(m) if o != i) > 1e-6:
            assert mean[i] > printed[i]
    less = tuple(value / 2 for value in rho)
    assert np.all(mean <= bounds.first_hit_mean(instance, less) * (1 + 1e-12))  # more exclusion never delays


@pytest.mark.parametrize("sizes", [(1,), (2, 2), (1, 3), (1, 1, 1, 1), (1, 2, 4), (5, 1, 1, 3)])
@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_the_bound_on_seeing_all_by_enumeration(sizes: tuple[int, ...], rho: float) -> None:
    instance = partition(sizes)
    exact = float(bandit_oracle.mean_discovery(3, sizes, fractions((rho,) * len(sizes))))
    assert exact <= bounds.discovery_bound(instance, rho) * (1 + 1e-12)
    if rho == 1.0:
        assert exact == bounds.discovery_bound(instance, 1.0) == len(sizes)
    if rho == 0.0 and len(set(sizes)) == 1:
        assert exact == pytest.approx(bounds.discovery_bound(instance, 0.0))
    more = (1.0, *(rho,) * (len(sizes) - 1))  # the bound goes by the least of the fractions
    if len(sizes) > 1:
        assert bounds.discovery_bound(instance, more) == bounds.discovery_bound(instance, rho)


@pytest.mark.parametrize(("K", "s"), [(2, 1), (4, 2), (5, 1), (6, 4), (6, 6)])
def test_the_search_by_all_placements_of_the_good_arms(K: int, s: int) -> None:
    """Pull the arms in order, and place the good ones everywhere, as the proof of the lower bound does."""
    placements = list(itertools.combinations(range(K), s))
    for t in range(K + 1):
        missed = Fraction(sum(min(good) >= t for good in placements), len(placements))
        assert bounds.miss_probability(K, s, t) == pytest.approx(float(missed))
        product = math.prod(Fraction(K - s - i, K - i) for i in range(t)) if t <= K - s else 0
        assert missed == product  # the paper's formula
    for T in range(1, K + 3):
        mean = Fraction(sum(min(T, min(good)) for good in placements), len(placements))
        assert bounds.search_mean(K, s, T) == pytest.approx(float(mean))
    assert bounds.search_mean(K, s, K) == pytest.approx((K - s) / (s + 1))


@pytest.mark.parametrize("T", [2, 100, 10**6])
@pytest.mark.parametrize("gap", [0.001, 0.03, 0.5, 1.0])
def test_the_bound_without_gaps_is_no_smaller_than_what_gaps_give(gap: float, T: int) -> None:
    """Regret is at most gap * T, too, so that the smaller of both is what has to be below."""
    instance = balanced(arms=10, outcomes=5, gap=gap)
    assert min(bounds.ucb_bound(instance, T), gap * T) <= bounds.gap_free_bound(5, T)


def test_each_algorithm_pays_for_its_search() -> None:
    instance, T = Instance((1, 3), (0.75, 0.25)), 100
    search = 0.5 * (2 + 0.5 * (1.5 * 4 - 2))
    assert bounds.soft_exclusion_bound(instance, 0.5, T) == pytest.approx(search + bounds.ucb_bound(instance, T))
    assert bounds.ucb_bound(instance, T) == pytest.approx(16 * math.log(100) + 0.5 * (1 + math.pi**2 / 3))
    equal = Instance((2, 2), (0.75, 0.25))
    assert bounds.balanced_bound(equal, T) == pytest.approx(0.5 * 3 + bounds.ucb_bound(equal, T))
