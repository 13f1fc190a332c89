"""Simulated bandits: the paper's algorithms against an oracle, one seed among many, and the errors of wrong input."""

from random import Random

import bandit_oracle
import numpy as np
import pytest

from experiments.bandits import (
    BALANCED,
    PARTITION_AWARE,
    Algorithm,
    Instance,
    SoftExclusion,
    discovery_times,
    simulate,
)

INSTANCE = Instance(sizes=(2, 5, 1), means=(0.3, 0.5, 0.8))
ALGORITHMS = [BALANCED, PARTITION_AWARE, SoftExclusion(0.7), SoftExclusion((0.0, 1.0, 0.5))]


@pytest.mark.parametrize(
    ("number", "algorithm", "rho"),
    [(1, BALANCED, ()), (2, PARTITION_AWARE, ()), (3, SoftExclusion((0.5, 0.25, 1.0)), (0.5, 0.25, 1.0))],
)
def test_the_papers_algorithms_pull_and_see_what_an_oracle_does(
    number: int, algorithm: Algorithm, rho: tuple[float, ...]
) -> None:
    """Pulls after 30 and 200 rounds, and first sightings, against the pseudo-code on sets of arms."""
    sizes, means, runs = (2, 8, 1), (0.8, 0.5, 0.2), 800
    instance = Instance(sizes, means)
    for horizon in (30, 200):
        oracle = [bandit_oracle.run(number, sizes, means, horizon, Random(seed), rho) for seed in range(runs)]
        pulls_SM = simulate(instance, algorithm, [horizon], range(runs)).pulls
        expected_SM = np.array([pulls for pulls, _ in oracle])
        assert_same_means(pulls_SM, expected_SM)
    hit_SM = discovery_times(instance, algorithm, range(runs))
    expected_SM = np.array([[round_ or 201 for round_ in first] for _, first in oracle])
    assert_same_means(np.minimum(hit_SM, 201), expected_SM)
    assert_same_means(hit_SM == 1, expected_SM == 1)  # the law of the first draw, too


def assert_same_means(left_SM: np.ndarray, right_SM: np.ndarray) -> None:
    error_M = np.sqrt(left_SM.var(axis=0) / len(left_SM) + right_SM.var(axis=0) / len(right_SM))
    assert (np.abs(left_SM.mean(axis=0) - right_SM.mean(axis=0)) <= 4.5 * error_M).all()


def test_the_ends_of_soft_exclusion_are_the_other_models() -> None:
    """rho = 1 is strong generalisation: as many draws as outcomes; rho = 0 excludes nothing: draws with repeats."""
    np.testing.assert_array_equal(
        discovery_times(INSTANCE, SoftExclusion(1.0), range(50)), discovery_times(INSTANCE, PARTITION_AWARE, range(50))
    )
    assert (discovery_times(INSTANCE, PARTITION_AWARE, range(200)).max(axis=1) == 3).all()
    hit_SM = discovery_times(INSTANCE, SoftExclusion(0.0), range(4000))
    np.testing.assert_allclose(hit_SM.mean(axis=0), [4, 1.6, 8], rtol=0.06)
    assert hit_SM.max() > 8  # more draws than arms


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_seed_by_itself_takes_the_path_it_takes_among_many(algorithm: Algorithm) -> None:
    seeds = [5, 0, 17, 2**40]
    together = simulate(INSTANCE, algorithm, [1, 10, 60], seeds)
    hits = discovery_times(INSTANCE, algorithm, seeds)
    for row, seed in enumerate(seeds):
        alone = simulate(INSTANCE, algorithm, [1, 10, 60], [seed])
        np.testing.assert_array_equal(alone.regret[0], together.regret[row])
        np.testing.assert_array_equal(alone.pulls[0], together.pulls[row])
        np.testing.assert_array_equal(discovery_times(INSTANCE, algorithm, [seed])[0], hits[row])
