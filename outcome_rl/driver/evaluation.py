"""Evaluation of a policy on problems: sample, classify, summarise."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from outcome_rl.driver.config import SamplingConfig
from outcome_rl.driver.data import ProblemSet, derive_seed
from outcome_rl.driver.prompts import Prompts
from outcome_rl.driver.rollout import RolloutEngine
from outcome_rl.metrics import SampleSummary, summarise
from outcome_rl.outcomes.matcher import OutcomeMatcher


class Evaluation(NamedTuple):
    """The summary of one problem set, and what it cost."""

    dataset: str
    summary: SampleSummary
    seconds: float


def evaluate(
    engine: RolloutEngine,
    matcher: OutcomeMatcher,
    dataset: ProblemSet,
    prompts: Prompts,
    sampling: SamplingConfig,
    max_tokens: int,
    seed: int,
) -> Evaluation:
    """Sample `sampling.n` responses to every problem and summarise their outcomes; nothing is counted.

    The seed is the run's, not the step's: evaluations of one run differ by the policy alone.
    """
    start = time.perf_counter()
    rollouts = engine.generate(prompts.ids, sampling, max_tokens, derive_seed(seed, "evaluate", dataset.fingerprint))
    n = sampling.n
    outcomes = matcher.classify(
        # Evaluation problems may share ids with training problems of another source.
        _repeat([f"{dataset.fingerprint[:8]}:{problem.id}" for problem in prompts.problems], n),
        rollouts.texts,
        _repeat([problem.answer for problem in prompts.problems], n),
    )
    keys, correct = outcomes.keys.reshape(-1, n), outcomes.correct.reshape(-1, n)
    return Evaluation(
        dataset=dataset.name,
        summary=summarise(list(keys), list(correct)),
        seconds=time.perf_counter() - start,
    )


def _repeat(values: Sequence[str], n: int) -> list[str]:
    return [value for value in values for _ in range(n)]
