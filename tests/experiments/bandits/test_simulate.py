"""Simulated bandits: the paper's algorithms against an oracle, one seed among many, and the errors of wrong input."""

from collections.abc import Callable
from random import Random
from typing import Any

import bandit_oracle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.bandits import (
    BALANCED,
    PARTITION_AWARE,
    Algorithm,
    Instance,
    SoftExclusion,
    balanced,
    discovery_times,
    needle,
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


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_first_hits_are_those_of_the_whole_run(algorithm: Algorithm) -> None:
    hit_SM = discovery_times(INSTANCE, algorithm, range(50))
    for step in range(1, hit_SM.max() + 1):
        seen_SM = simulate(INSTANCE, algorithm, [step], range(50)).pulls > 0
        # A row whose search has ended sees nothing new, so that both agree at every step.
        np.testing.assert_array_equal(seen_SM, hit_SM <= step)


def test_pseudo_regret_is_the_gaps_of_what_was_pulled() -> None:
    rounds = [1, 7, 100]
    result = simulate(INSTANCE, BALANCED, rounds, range(30))
    np.testing.assert_array_equal(result.rounds, rounds)
    np.testing.assert_array_equal(result.pulls.sum(axis=1), 100)
    np.testing.assert_allclose(result.regret[:, -1], result.pulls @ np.array([0.5, 0.3, 0.0]))
    earlier = simulate(INSTANCE, BALANCED, rounds[:2], range(30))
    np.testing.assert_array_equal(earlier.regret, result.regret[:, :2])


def test_noise_free_rewards_are_what_ucb1_makes_of_them() -> None:
    """Means 1 and 0 leave the order of the search as the only chance: a plain loop gives the same pulls."""
    pulls_of_good, count, total = [], [1, 1], [1.0, 0.0]
    for step in range(3, 201):
        index = [total[i] / count[i] + (2 * np.log(step) / count[i]) ** 0.5 for i in (0, 1)]
        chosen = int(index[1] > index[0])
        count[chosen] += 1
        total[chosen] += 1.0 - chosen
        pulls_of_good.append(count[0])
    for rounds in ([50], [200]):
        pulls = simulate(Instance((1, 1), (1.0, 0.0)), PARTITION_AWARE, rounds, range(20)).pulls
        assert set(pulls[:, 0]) == {pulls_of_good[rounds[0] - 3]}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.floats(0.0, 1.0), st.integers(0, 2**32))
def test_a_search_sees_each_outcome_once_first(sizes: list[int], rho: float, seed: int) -> None:
    instance = Instance(sizes=tuple(sizes), means=(0.5,) * len(sizes))
    hit_M = discovery_times(instance, SoftExclusion(rho), [seed])[0]
    assert hit_M.min() == 1
    assert len(set(hit_M.tolist())) == len(sizes)  # one draw sees one outcome
    without_repeats = discovery_times(instance, SoftExclusion(1.0), [seed])[0]
    assert sorted(without_repeats.tolist()) == list(range(1, len(sizes) + 1))


def test_only_shares_of_arms_count_for_generalisation() -> None:
    """Not for Algorithm 1, which draws without replacement: of four arms it never draws one twice."""
    few, many = balanced(arms=4, outcomes=4, gap=0.5), balanced(arms=4000, outcomes=4, gap=0.5)
    assert discovery_times(few, BALANCED, range(100)).max() == 4
    assert discovery_times(many, BALANCED, range(100)).max() > 4
    for algorithm in (PARTITION_AWARE, SoftExclusion(0.7), SoftExclusion((0.0, 1.0, 0.5, 0.5))):
        np.testing.assert_array_equal(
            simulate(few, algorithm, [200], range(10)).regret, simulate(many, algorithm, [200], range(10)).regret
        )


def test_order_of_outcomes_does_not_favour_any() -> None:
    """UCB1's ties are many with coins for rewards; which of two equal outcomes is pulled more must be chance."""
    pulls = simulate(Instance(sizes=(1, 1), means=(0.5, 0.5)), PARTITION_AWARE, [101], range(2000)).pulls
    ahead = (pulls[:, 0] > pulls[:, 1]).mean()
    assert abs(ahead - 0.5) < 5 * (0.25 / 2000) ** 0.5


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Instance((1, 2), (0.5,)), ValueError, "2 sizes and 1 means"),
        (lambda: Instance((), ()), ValueError, "at least one"),
        (lambda: Instance((1.5,), (0.5,)), TypeError, "integers .* got 1.5"),
        (lambda: Instance((1,), (1.5,)), ValueError, "means .* got 1.5"),
        (lambda: balanced(arms=10, outcomes=3, gap=0.1), ValueError, "arms=10 and outcomes=3"),
        (lambda: needle(5, good=6), ValueError, "good .* got 6"),
        (lambda: SoftExclusion((0.5, -0.1)), ValueError, "rho .* got -0.1"),
        (lambda: discovery_times(INSTANCE, SoftExclusion((0.5, 0.5)), [0]), ValueError, "one for each of 3 outcomes"),
        (lambda: simulate(INSTANCE, BALANCED, [], [0]), ValueError, "rounds must be a list of at least one"),
        (lambda: simulate(INSTANCE, BALANCED, [3, 3], [0]), ValueError, r"rounds must ascend .* got \[3, 3\]"),
        (lambda: simulate(INSTANCE, BALANCED, [5], 3), ValueError, "seeds must be a list"),
        (lambda: simulate(INSTANCE, BALANCED, [5], [-1]), ValueError, "seeds must be at least 0; got -1"),
    ],
)
def test_wrong_input_is_named(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
