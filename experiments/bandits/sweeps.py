"""Regret against T, K, m and rho next to the bounds, and each statement that is corrected, as curves."""

import math
from collections.abc import Callable, Iterable
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from experiments.bandits import bounds
from experiments.bandits.algorithms import BALANCED, PARTITION_AWARE, Algorithm, SoftExclusion
from experiments.bandits.instances import Instance, balanced, needle
from experiments.bandits.simulate import discovery_times, simulate

OVER_ARMS = "UCB over arms"
ALGORITHMS: dict[str, Algorithm] = {
    OVER_ARMS: BALANCED,
    "Algorithm 1, balanced": BALANCED,
    "Algorithm 3, rho = 0.9": SoftExclusion(0.9),
    "Algorithm 2, partition-aware": PARTITION_AWARE,
}
RHOS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)


class Curve(TypedDict):
    """Means over seeds with their standard errors; exact values and bounds have none. None: not defined there."""

    mean: list[float | None]
    standard_error: list[float] | None


class Panel(TypedDict):
    """Curves over the values of one axis, `x`."""

    title: str
    x: str
    y: str
    values: list[float]
    curves: dict[str, Curve]


def sweep(seeds: int, progress: Callable[[str], None] = lambda title: None) -> list[Panel]:
    """Simulate every panel.

    Args:
        seeds: runs of each point, at least 2; discovery, which is cheap and noisy, gets twenty times as many.
        progress: called with the title of each panel after it.

    Raises:
        ValueError: `seeds` is below 2, which has no standard error.
    """
    if seeds < 2:
        raise ValueError(f"seeds must be at least 2, as one run has no standard error; got {seeds}.")
    panels = []
    for make, runs in (
        (_against_T, seeds),
        (_against_K, seeds),
        (_against_m, seeds),
        (_against_rho, seeds),
        (_first_hit, 20 * seeds),
        (_discovery, 20 * seeds),
        (_miss, 20 * seeds),
        (_search, 20 * seeds),
    ):
        panels.append(make(np.arange(runs)))
        progress(panels[-1]["title"])
    return panels


def table(panels: list[Panel]) -> str:
    """Return every panel as a table in Markdown, one row per curve."""
    blocks = []
    for panel in panels:
        heads = " | ".join(f"{value:,g}" for value in panel["values"])
        lines = [f"| {panel['title']}; {panel['x']} = | {heads} |", f"|---|{'---:|' * len(panel['values'])}"]
        lines += [f"| {name} | {' | '.join(_cells(curve))} |" for name, curve in panel["curves"].items()]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _against_T(seeds: NDArray[np.int64]) -> Panel:
    instance, rounds = balanced(arms=100, outcomes=10, gap=0.5), [10, 30, 100, 300, 1000, 3000]
    curves = {name: _seen(_regret(name, instance, rounds, seeds)) for name in ALGORITHMS}
    curves["bound, Algorithm 1"] = _exact(bounds.balanced_bound(instance, T) for T in rounds)
    return _panel("Regret: m = 10, K = 100, gap 0.5", "T", "pseudo-regret", rounds, curves)


def _against_K(seeds: NDArray[np.int64]) -> Panel:
    T, arms = 1000, [10, 30, 100, 300]
    curves = {name: _seen(np.hstack([_regret(name, needle(K), [T], seeds) for K in arms])) for name in ALGORITHMS}
    curves["least without generalisation"] = _exact(0.5 * bounds.search_mean(K, 1, T) for K in arms)
    return _panel("Regret: one good arm, gap 0.5, T = 1,000", "K", "pseudo-regret", arms, curves)


def _against_m(seeds: NDArray[np.int64]) -> Panel:
    T, outcomes = 3000, [2, 4, 10, 20, 50]
    instances = [balanced(arms=100, outcomes=m, gap=0.5) for m in outcomes]
    curves = {name: _seen(np.hstack([_regret(name, i, [T], seeds) for i in instances])) for name in ALGORITHMS}
    curves["bound, Algorithm 1"] = _exact(bounds.balanced_bound(instance, T) for instance in instances)
    curves["bound of UCB, whatever the gap"] = _exact(bounds.gap_free_bound(m, T) for m in outcomes)
    return _panel("Regret: K = 100, gap 0.5, T = 3,000", "m", "pseudo-regret", outcomes, curves)


def _against_rho(seeds: NDArray[np.int64]) -> Panel:
    T, instance = 1000, needle(100)
    curves = {
        "Algorithm 3": _seen(np.hstack([simulate(instance, SoftExclusion(rho), [T], seeds).regret for rho in RHOS])),
        "bound, Algorithm 3": _exact(bounds.soft_exclusion_bound(instance, rho, T) for rho in RHOS),
    }
    return _panel("Regret: one good arm, K = 100, gap 0.5, T = 1,000", "rho", "pseudo-regret", RHOS, curves)


def _first_hit(seeds: NDArray[np.int64]) -> Panel:
    instance = balanced(arms=100, outcomes=10, gap=0.5)
    hit_SR = np.stack([discovery_times(instance, SoftExclusion(rho), seeds)[:, 0] for rho in RHOS], axis=1)
    curves = {
        "Algorithm 3": _seen(hit_SR),
        "exact mean": _exact(bounds.first_hit_mean(instance, rho)[0] for rho in RHOS),
        "upper bound as printed": _exact(bounds.printed_first_hit_bound(instance, rho)[0] for rho in RHOS),
        "upper bound corrected": _exact(bounds.first_hit_bound(instance, rho)[0] for rho in RHOS),
    }
    return _panel("First hit of an outcome: m = 10, K = 100", "rho", "draws", RHOS, curves)


def _discovery(seeds: NDArray[np.int64]) -> Panel:
    outcomes = [2, 4, 10, 20, 50]
    instances = [balanced(arms=100, outcomes=m, gap=0.5) for m in outcomes]
    last_SR = np.stack([discovery_times(instance, BALANCED, seeds).max(axis=1) for instance in instances], axis=1)
    curves = {
        "Algorithm 1": _seen(last_SR),
        "exact mean": _exact(bounds.balanced_discovery_mean(instance) for instance in instances),
        "coupon collector, m H_m": _exact(m * bounds.harmonic(m) for m in outcomes),
    }
    return _panel("All outcomes seen: K = 100", "m", "draws", outcomes, curves)


def _miss(seeds: NDArray[np.int64]) -> Panel:
    K, good = 100, [1, 2, 5, 10, 15, 25]
    pulls = [K // (4 * s) for s in good]
    missed_SR = np.stack([_found(K, s, seeds) > t for s, t in zip(good, pulls, strict=True)], axis=1)
    curves = {
        "search without repeats": _seen(missed_SR.astype(np.float64)),
        "exact": _exact(bounds.miss_probability(K, s, t) for s, t in zip(good, pulls, strict=True)),
        "middle step as printed": _exact(bounds.printed_step(K, s) for s in good),
        "e^-1/2, which the proof puts below it": _exact(math.exp(-0.5) for _ in good),
        "3/4, by the union bound": _exact(0.75 for _ in good),
    }
    return _panel("No good arm in t* = floor(K/4s) pulls: K = 100", "s", "probability", good, curves)


def _search(seeds: NDArray[np.int64]) -> Panel:
    K, good = 100, [1, 2, 5, 10, 25, 50, 75, 100]
    curves = {
        "search without repeats": _seen(np.stack([_found(K, s, seeds) - 1 for s in good], axis=1)),
        "exact, (K-s)/(s+1)": _exact((K - s) / (s + 1) for s in good),
        "lower bound as printed": _exact(bounds.printed_search_bound(K, s, K) for s in good),
        "lower bound corrected": _exact(bounds.search_bound(K, s, K) for s in good),
    }
    return _panel("Bad pulls before a good arm: K = 100", "s", "pulls", good, curves)


def _found(arms: int, good: int, seeds: NDArray[np.int64]) -> NDArray[np.int64]:
    return discovery_times(needle(arms, good), BALANCED, seeds)[:, 0]


def _regret(name: str, instance: Instance, rounds: list[int], seeds: NDArray[np.int64]) -> NDArray[np.float64]:
    seen = instance.singletons() if name == OVER_ARMS else instance
    return simulate(seen, ALGORITHMS[name], rounds, seeds).regret  # (S, R)


def _panel(title: str, x: str, y: str, values: Iterable[float], curves: dict[str, Curve]) -> Panel:
    return Panel(title=title, x=x, y=y, values=list(values), curves=curves)


def _seen(value_SR: NDArray[np.int64] | NDArray[np.float64]) -> Curve:
    error_R = value_SR.std(axis=0, ddof=1) / math.sqrt(len(value_SR))
    return Curve(mean=value_SR.mean(axis=0).tolist(), standard_error=error_R.tolist())


def _exact(values: Iterable[float | None]) -> Curve:
    return Curve(mean=[None if value is None else float(value) for value in values], standard_error=None)


def _cells(curve: Curve) -> list[str]:
    errors = curve["standard_error"]
    if errors is None:
        return ["" if mean is None else _number(mean) for mean in curve["mean"]]
    return [f"{_number(mean or 0.0)} ± {error:.2g}" for mean, error in zip(curve["mean"], errors, strict=True)]


def _number(value: float) -> str:
    """Format with three digits, or with all digits before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
