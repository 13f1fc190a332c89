"""The paper's algorithms 1 to 3, line by line from its appendix A, on sets of arms in plain Python: slow, and no array.

Nothing of `experiments.bandits` is used. Arms are numbered outcome by outcome.
"""

import itertools
import math
from collections.abc import Sequence
from random import Random


def run(
    algorithm: int, sizes: Sequence[int], means: Sequence[float], horizon: int, rng: Random, rho: Sequence[float] = ()
) -> tuple[list[int], list[int | None]]:
    """Pulls of each outcome up to the horizon, and the round at which each was first seen (None: never).

    Algorithm 2 picks any arm of U; here, a uniformly random one. Algorithm 3 is in discovery mode until every outcome
    was seen.
    """
    classes = _classes(sizes)
    phi = {arm: o for o, arms in enumerate(classes) for arm in arms}
    discovered: set[int] = set()
    rep: dict[int, int] = {}
    n, mean = [0] * len(sizes), [0.0] * len(sizes)
    U = set(phi)
    first: list[int | None] = [None] * len(sizes)
    for t in range(1, horizon + 1):
        if len(discovered) < len(sizes):
            arm = rng.choice(sorted(U))
            o = phi[arm]
            if algorithm == 1:
                U.discard(arm)
            if o not in discovered:
                discovered.add(o)
                rep[o] = arm
                first[o] = t
                if algorithm == 2:
                    U -= classes[o]
                if algorithm == 3:
                    excluded = round(rho[o] * sizes[o])
                    assert excluded == rho[o] * sizes[o], "the fraction must be a whole number of arms"
                    U -= set(rng.sample(sorted(classes[o]), excluded))
        else:
            index = [mean[i] + math.sqrt(2 * math.log(t) / max(1, n[i])) for i in range(len(sizes))]
            best = max(index)
            o = phi[rep[rng.choice([i for i, value in enumerate(index) if value == best])]]
        reward = float(rng.random() < means[o])
        n[o] += 1
        mean[o] += (reward - mean[o]) / n[o]
    return n, first


def _classes(sizes: Sequence[int]) -> list[set[int]]:
    starts = itertools.accumulate(sizes, initial=0)
    return [set(range(start, start + size)) for start, size in zip(starts, sizes, strict=False)]
