"""Samples of one update: sampled, scored and counted, and with dynamic sampling until enough of them have a gradient.

A group whose advantages and bonuses are all zero has no policy gradient. DAPO's dynamic sampling (arXiv:2503.14476,
section 3.2) leaves such groups out and continues to sample until it has a batch of others. Two things differ here:

- All samples are counted, scored and reported before any is left out: a rare answer is found only once.
- The rule is the gradient, not the rewards: a group of only wrong answers stays if its bonuses explore.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import torch

from outcome_rl.exploration.explorer import Explorer
from outcome_rl.exploration.scored import Scored
from outcome_rl.exploration.traces import trace
from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.schema import AlgorithmConfig, RolloutConfig
from outcome_rl.grpo.data.problems import BatchOrder
from outcome_rl.grpo.data.reward import RewardFunction
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.engine import RolloutEngine, check_complete
from outcome_rl.grpo.types import Problem, ProblemSet, Rollout, TrainingBatch
from outcome_rl.outcomes.answer_mask import answer_spans
from outcome_rl.sampler.seeds import derive_seed
from outcome_rl.sampler.stale import warn_of_identical

T = TypeVar("T")


class Collected(NamedTuple):
    """The responses of one update, in columns: N of several batches one after another."""

    problems: list[Problem]  # the one of each response
    rollouts: list[Rollout]
    scored: Scored  # on the host
    batch: TrainingBatch  # of the groups that the update learns from
    num_batches: int  # drawn from the data
    metrics: dict[str, float]
    rollout_s: float
    outcomes_s: float

    def rows(self, step: int, chosen: Sequence[int]) -> list[dict[str, Any]]:
        """Return the rows of `samples.jsonl` for some of the responses."""
        scored = self.scored.select(list(chosen))
        columns = trace(scored) | {"reward": scored.rewards.tolist()}
        return [
            {
                "step": step,
                "question_id": self.problems[row].id,
                "question": self.problems[row].problem,
                "gold": self.problems[row].answer,
                "completion": self.rollouts[row].text,
                **dict(zip(columns, values, strict=True)),
            }
            for row, *values in zip(chosen, *columns.values(), strict=True)
        ]


@dataclass
class Collector:
    """Collects the samples of an update: draws batches of questions in order, samples responses and scores them."""

    rollout: RolloutConfig
    algorithm: AlgorithmConfig
    longest: int  # tokens of a response
    seed: int
    dataset: ProblemSet
    order: BatchOrder
    policy: Policy  # its tokenizer and end tokens are used
    engine: RolloutEngine
    explorer: Explorer
    reward: RewardFunction | None = None  # None takes 1 for a correct response and 0 for another

    def collect(self, drawn: int) -> Collected:
        """Collect the samples of one update.

        Args:
            drawn: number of batches drawn so far: the position in the data, and in the seeds of sampling.
        """
        filter_groups, n = self.algorithm.filter_groups, self.rollout.n
        wanted = self.order.batch_size * n
        most = filter_groups.max_num_gen_batches if filter_groups.enable else 1
        problems: list[Problem] = []
        batches: list[TrainingBatch] = []
        scored_batches: list[Scored] = []
        informative: list[int] = []  # responses of groups with a gradient
        rollout_s = outcomes_s = 0.0
        failed_rewards = 0
        while len(batches) < most and len(informative) < wanted:
            start = time.perf_counter()
            number = drawn + len(batches) + 1
            rollouts = self._rollouts(number)
            rolled_out = time.perf_counter()
            questions = [self.dataset.problems[i] for i in self.order.batch(number)]
            batch, scored = self.score(questions, rollouts)
            has_gradient_N = batch.trained_N & (batch.advantages_N + batch.bonuses_N != 0)
            learns_N = has_gradient_N.view(-1, n).any(dim=1).repeat_interleave(n)
            informative += (len(problems) + learns_N.nonzero()[:, 0]).tolist()
            problems += _repeat(questions, n)
            batches.append(batch)
            scored_batches.append(scored)
            failed_rewards += 0 if self.reward is None else self.reward.failed
            rollout_s += rolled_out - start
            outcomes_s += time.perf_counter() - rolled_out
        every, scored = TrainingBatch.join(batches), Scored.join(scored_batches)
        metrics = self._metrics(every.rollouts, scored)
        if self.reward is not None and self.reward.isolated:
            metrics["reward/failed"] = failed_rewards
        if filter_groups.enable:
            metrics["sampling/batches"] = len(batches)
            metrics["sampling/informative_groups"] = len(informative) / len(every)
        batch = every.select(informative[:wanted]) if filter_groups.enable else every
        return Collected(problems, [*every.rollouts], scored, batch, len(batches), metrics, rollout_s, outcomes_s)

    def _metrics(self, rollouts: Sequence[Rollout], scored: Scored) -> dict[str, float]:
        lengths = [len(rollout.token_ids) for rollout in rollouts]
        metrics = scored.metrics | {
            "response/tokens_mean": sum(lengths) / len(lengths),
            "response/at_limit": lengths.count(self.longest) / len(lengths),
        }
        if self.reward is not None:
            metrics["reward/mean"] = sum(scored.rewards.tolist()) / len(lengths)
        return metrics

    def _rollouts(self, number: int) -> list[Rollout]:
        """Sample the responses of a batch."""
        prompts = [self.dataset.prompts[i] for i in self.order.batch(number)]
        seed = derive_seed(self.seed, "rollout", number)
        rollouts = self.engine.generate(prompts, self.rollout, self.longest, seed)
        check_complete(rollouts, self.rollout)
        return rollouts

    def score(self, problems: Sequence[Problem], rollouts: Sequence[Rollout]) -> tuple[TrainingBatch, Scored]:
        """Score and count the `rollout.n` responses to each problem; each process reads its share of them."""
        own, repeated = distributed.contiguous_shard, _repeat(problems, self.rollout.n)
        texts = [rollout.text for rollout in rollouts]
        rewards = None if self.reward is None else self.reward(texts, repeated)
        groups = _repeat(range(len(problems)), self.rollout.n)
        warn_of_identical(groups, texts)
        scored = self.explorer.score(
            [problem.id for problem in own(repeated)],
            own(texts),
            [problem.answer for problem in own(repeated)],
            None if rewards is None else own(rewards),
            reward_weights=None if self.reward is None else self.reward.weights,
            group_ids=own(groups),
            rows=[problem.example for problem in own(repeated)],
        ).host
        spans = [(0, 0)] * len(rollouts)
        if scored.answer_mask_mode != "none":
            ids = [rollout.token_ids for rollout in rollouts]
            spans = answer_spans(self.policy.tokenizer, ids, scored.answers, texts)
        ends, cuts = {*self.policy.end_token_ids}, self.algorithm.mask_truncated_completions
        trained = [not cuts or bool(ends.intersection(rollout.token_ids[-1:])) for rollout in rollouts]
        batch = TrainingBatch(
            rollouts=rollouts,
            advantages_N=scored.advantages.float(),
            bonuses_N=scored.bonuses.float(),
            correct_N=scored.correct,
            spans_N2=torch.tensor(spans),
            trained_N=torch.tensor(trained),
        )
        return batch, scored


def _repeat(values: Iterable[T], n: int) -> list[T]:
    return [value for value in values for _ in range(n)]
