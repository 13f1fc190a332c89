"""Simulation of many seeds of an algorithm at once, as rows of arrays.

Random numbers are a function of seed and round alone, so that a seed takes the same path by itself and among thousands.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.bandits.algorithms import Algorithm, ucb
from experiments.bandits.instances import Instance


class Simulation(NamedTuple):
    """Result of `simulate`: S seeds, R recorded rounds, M outcomes."""

    rounds: NDArray[np.int64]  # (R,) ascending, the first round is 1
    regret: NDArray[np.float64]  # (S, R) pseudo-regret up to and with each recorded round
    pulls: NDArray[np.int64]  # (S, M) pulls of each outcome up to the last recorded round


def simulate(instance: Instance, algorithm: Algorithm, rounds: Sequence[int], seeds: ArrayLike) -> Simulation:
    """Run an algorithm until the last of `rounds`, recording its pseudo-regret at each of them.

    Pseudo-regret is `sum over pulls of (best mean - mean of the outcome pulled)`: without the noise of rewards.

    Args:
        instance: the bandit.
        algorithm: the search; after each outcome was seen once, UCB1 over outcomes with all samples so far.
        rounds: rounds to record at, integers >= 1, ascending.
        seeds: distinct runs, integers >= 0, shape (S,).

    Returns:
        A `Simulation` whose rows are independent of one another.
    """
    round_R, stream_S = np.asarray(rounds, np.int64), _streams(seeds)
    S, M = len(stream_S), instance.outcomes
    row_S = np.arange(S)
    size_M, mean_M, gap_M = np.array(instance.sizes, np.float64), np.array(instance.means), instance.gaps
    count_SM, sum_SM = np.zeros((S, M)), np.zeros((S, M))
    pool_SM = np.tile(size_M, (S, 1))
    # Among equal indices each seed prefers one at random; the first would always be the best of `balanced`.
    tie_SM = 1e-9 * np.stack([_uniforms(stream_S, ~outcome) for outcome in range(M)], axis=1)
    regret_SR = np.empty((S, len(round_R)))
    undiscovered_S = np.full(S, M)
    recorded = 0
    for step in range(1, int(round_R[-1]) + 1):
        searching_S = undiscovered_S > 0
        outcome_S = (ucb(np.maximum(count_SM, 1.0), sum_SM, step) + tie_SM).argmax(axis=1)
        if searching_S.any():
            outcome_S[searching_S] = _draw(pool_SM[searching_S], _uniforms(stream_S[searching_S], 2 * step))
        is_new_S = count_SM[row_S, outcome_S] == 0
        if searching_S.any():  # what leaves the pool of a row that has ended its search is of no consequence
            pool_SM[row_S, outcome_S] -= algorithm.leaving(size_M, outcome_S, is_new_S)
        undiscovered_S -= is_new_S
        count_SM[row_S, outcome_S] += 1
        sum_SM[row_S, outcome_S] += _uniforms(stream_S, 2 * step + 1) < mean_M[outcome_S]
        if step == round_R[recorded]:
            regret_SR[:, recorded] = (count_SM * gap_M).sum(axis=1)  # BLAS would round by the number of seeds
            recorded += 1
    return Simulation(round_R, regret_SR, count_SM.astype(np.int64))


def discovery_times(instance: Instance, algorithm: Algorithm, seeds: ArrayLike) -> NDArray[np.int64]:
    """Return the draw, counted from 1, at which each outcome is first seen by the search of an algorithm.

    Args:
        instance: the bandit; its means have no effect.
        algorithm: the search.
        seeds: distinct runs, integers >= 0, shape (S,).

    Returns:
        First hits, int64, shape (S, M). Their maximum over M is the draw after which all outcomes are seen. `simulate`
        with the same seeds has the same first hits.
    """
    stream_S = _streams(seeds)
    size_M = np.array(instance.sizes, np.float64)
    hit_SM = np.zeros((len(stream_S), instance.outcomes), np.int64)
    pool_SM = np.tile(size_M, (len(stream_S), 1))
    searching = np.arange(len(stream_S))  # rows with outcomes still to be seen
    step = 0
    while len(searching):
        step += 1
        outcome = _draw(pool_SM[searching], _uniforms(stream_S[searching], 2 * step))
        is_new = hit_SM[searching, outcome] == 0
        hit_SM[searching[is_new], outcome[is_new]] = step
        pool_SM[searching, outcome] -= algorithm.leaving(size_M, outcome, is_new)
        searching = searching[(hit_SM[searching] == 0).any(axis=1)]
    return hit_SM


def _draw(pool_SM: NDArray[np.float64], uniform_S: NDArray[np.float64]) -> NDArray[np.int64]:
    """Draw an arm uniformly from the pool of each row, and return its outcome."""
    cumulative_SM = pool_SM.cumsum(axis=1)
    return np.asarray((cumulative_SM > (uniform_S * cumulative_SM[:, -1])[:, None]).argmax(axis=1), np.int64)


def _streams(seeds: ArrayLike) -> NDArray[np.uint64]:
    return _mix(np.asarray(seeds, np.uint64))


def _uniforms(stream_S: NDArray[np.uint64], index: int) -> NDArray[np.float64]:
    """Return the number at `index` of every stream, uniform in [0, 1)."""
    bits_S = _mix(stream_S ^ _mix(np.array([index]).astype(np.uint64))) >> np.uint64(11)
    return bits_S.astype(np.float64) * 2.0**-53


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix by SplitMix64 (Steele, Lea and Flood 2014): a bijection with independent-looking outputs for near inputs."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
