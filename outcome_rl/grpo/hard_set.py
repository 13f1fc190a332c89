"""The hard set of the paper: problems that the base policy fails in every one of 512 samples, `pass@512 = 0`.

A problem leaves as soon as one of its samples is correct, since the answer is known then. So samples are drawn in
rounds, up to 8 of each problem, up to 64, up to 512, and easy problems cost 8.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from outcome_rl.analyze import read_samples
from outcome_rl.grpo.data.prompts import Prompts
from outcome_rl.grpo.sample import Sampler
from outcome_rl.outcomes.keys import NO_ANSWER
from outcome_rl.outcomes.matcher import OutcomeMatcher, Progress

GROWTH = 8


class Statistics(NamedTuple):
    """What the samples of one problem showed: a row of `statistics.jsonl`."""

    id: str
    n: int
    correct: int
    distinct: int  # different answers
    no_answer: int


def find_hard(
    sampler: Sampler,
    matcher: OutcomeMatcher,
    prompts: Prompts,
    k: int,
    out: Path,
    show: Callable[[str, str], AbstractContextManager[Progress]],
) -> tuple[list[Statistics], list[str]]:
    """Sample until each problem is solved or has failed `k` times.

    Args:
        k: samples that a hard problem fails.
        out: folder of `samples-N.jsonl`, the rounds, by which a search that was stopped goes on.
        show: opens a display of progress, given what is done and in which unit.

    Returns:
        The statistics of every problem, and the ids of the hard ones. A problem whose gold cannot be judged
        (`matcher.bad_golds`) is not hard; it leaves after the first round.
    """
    statistics: dict[str, Statistics] = {}
    answers: dict[str, list[str | None]] = {problem.id: [] for problem in prompts.problems}
    left, drawn = prompts, 0
    while left.problems and drawn < k:
        total = min(k, GROWTH * max(drawn, 1))
        path = out / f"samples-{total}.jsonl"
        sampling = replace(sampler.config.rollout.val_kwargs, n=total - drawn)
        name = f"samples {drawn + 1} to {total}"
        with show(name, "questions") as progress:
            sampler.fill(path, left, sampling, name, progress)
        for question in read_samples(path):
            answers[question.question_id] += question.answers
        statistics.update(_judged(matcher, left, [answers[problem.id] for problem in left.problems]))
        left = _unsolved(left, statistics, matcher)
        drawn = total
    return [statistics[problem.id] for problem in prompts.problems], [problem.id for problem in left.problems]


def _judged(
    matcher: OutcomeMatcher, prompts: Prompts, answers: Sequence[Sequence[str | None]]
) -> dict[str, Statistics]:
    outcomes = matcher.classify_answers(
        [problem.id for problem, own in zip(prompts.problems, answers, strict=True) for _ in own],
        [answer for own in answers for answer in own],
        [problem.answer for problem, own in zip(prompts.problems, answers, strict=True) for _ in own],
    )
    ends = np.cumsum([len(own) for own in answers])[:-1]
    statistics = {}
    for problem, keys, correct in zip(
        prompts.problems, np.split(outcomes.keys, ends), np.split(outcomes.correct, ends), strict=True
    ):
        distinct, no_answer = len(np.unique(keys[keys != NO_ANSWER])), int((keys == NO_ANSWER).sum())
        statistics[problem.id] = Statistics(problem.id, len(keys), int(correct.sum()), distinct, no_answer)
    return statistics


def _unsolved(prompts: Prompts, statistics: dict[str, Statistics], matcher: OutcomeMatcher) -> Prompts:
    kept = [
        (problem, ids)
        for problem, ids in zip(prompts.problems, prompts.ids, strict=True)
        if not statistics[problem.id].correct and problem.id not in matcher.bad_golds
    ]
    return Prompts(tuple(problem for problem, _ in kept), [ids for _, ids in kept])
