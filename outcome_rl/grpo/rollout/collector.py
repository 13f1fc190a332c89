"""Samples of one update: sampled, scored and counted, and with dynamic sampling until enough of them have a gradient.

A group whose advantages and bonuses are all zero has no policy gradient. DAPO's dynamic sampling (arXiv:2503.14476,
section 3.2) leaves such groups out and continues to sample until it has a batch of others. Two things differ here:

- All samples are counted, scored and reported before any is left out: a rare answer is found only once.
- The rule is the gradient, not the rewards: a group of only wrong answers stays if its bonuses explore.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from outcome_rl.exploration.explorer import Explorer
from outcome_rl.exploration.scored import Scored
from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.data.problems import BatchOrder
from outcome_rl.grpo.data.reward import RewardFunction
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.engine import RolloutEngine, check_complete
from outcome_rl.grpo.types import Problem, ProblemSet, Rollout, Sample
from outcome_rl.outcomes.answer_mask import answer_spans
from outcome_rl.sampler.seeds import derive_seed
from outcome_rl.sampler.stale import warn_of_identical


class Collected(NamedTuple):
    """The samples of one update."""

    samples: list[Sample]  # N, of several batches one after another
    batch: list[Sample]  # the samples of the groups that the update learns from
    num_batches: int  # drawn from the data
    metrics: dict[str, float]
    rollout_s: float
    outcomes_s: float


@dataclass
class Collector:
    """Collects the samples of an update: draws batches of questions in order, samples responses and scores them."""

    config: TrainConfig
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
        filter_groups, wanted = self.config.algorithm.filter_groups, self.config.data.train_batch_size
        most = filter_groups.max_num_gen_batches if filter_groups.enable else 1
        n = self.config.rollout.n
        samples: list[Sample] = []
        scored_batches: list[Scored] = []
        informative: list[Sample] = []
        rollout_s = outcomes_s = 0.0
        failed_rewards = 0
        while len(scored_batches) < most and len(informative) < wanted * n:
            start = time.perf_counter()
            number = drawn + len(scored_batches) + 1
            rollouts = self._rollouts(number)
            rolled_out = time.perf_counter()
            new, scored = self.score([self.dataset.problems[i] for i in self.order.batch(number)], rollouts)
            samples += new
            failed_rewards += 0 if self.reward is None else self.reward.failed
            scored_batches.append(scored)
            for first in range(0, len(new), n):
                group = new[first : first + n]
                if any(sample.trained and sample.advantage + sample.bonus for sample in group):
                    informative += group
            rollout_s += rolled_out - start
            outcomes_s += time.perf_counter() - rolled_out
        metrics = self._metrics(samples, scored_batches)
        if self.reward is not None and self.reward.isolated:
            metrics["reward/failed"] = failed_rewards
        if filter_groups.enable:
            metrics["sampling/batches"] = len(scored_batches)
            metrics["sampling/informative_groups"] = len(informative) / len(samples)
        batch = informative[: wanted * n] if filter_groups.enable else samples
        return Collected(samples, batch, len(scored_batches), metrics, rollout_s, outcomes_s)

    def _metrics(self, samples: Sequence[Sample], scored_batches: Sequence[Scored]) -> dict[str, float]:
        lengths = [len(sample.rollout.token_ids) for sample in samples]
        longest = self.config.data.max_response_length
        metrics = Scored.join([scored.host for scored in scored_batches]).metrics | {
            "response/tokens_mean": sum(lengths) / len(lengths),
            "response/at_limit": lengths.count(longest) / len(lengths),
        }
        if self.reward is not None:
            metrics["reward/mean"] = sum(sample.reward for sample in samples) / len(samples)
        return metrics

    def _rollouts(self, number: int) -> list[Rollout]:
        """Sample the responses of a batch."""
        prompts = [self.dataset.prompts[i] for i in self.order.batch(number)]
        longest, seed = self.config.data.max_response_length, derive_seed(self.config.trainer.seed, "rollout", number)
        rollouts = self.engine.generate(prompts, self.config.rollout, longest, seed)
        check_complete(rollouts, self.config)
        return rollouts

    def score(self, problems: Sequence[Problem], rollouts: Sequence[Rollout]) -> tuple[list[Sample], Scored]:
        """Score and count the `rollout.n` responses to each problem; each process reads its share of them."""
        algorithm, own = self.config.algorithm, distributed.contiguous_shard
        repeated = [problem for problem in problems for _ in range(self.config.rollout.n)]
        texts = [rollout.text for rollout in rollouts]
        rewards = None if self.reward is None else self.reward(texts, repeated)
        groups = [group for group in range(len(problems)) for _ in range(self.config.rollout.n)]
        warn_of_identical(groups, texts)
        scored = self.explorer.score(
            [problem.id for problem in own(repeated)],
            own(texts),
            [problem.answer for problem in own(repeated)],
            None if rewards is None else own(rewards),
            group_ids=own(groups),
            rows=[problem.example for problem in own(repeated)],
            scale="std" if algorithm.norm_adv_by_std_in_grpo else "none",
        )
        answers = scored.answers
        spans = [(0, 0)] * len(rollouts)
        if scored.answer_mask_mode != "none":
            ids = [rollout.token_ids for rollout in rollouts]
            spans = answer_spans(self.policy.tokenizer, ids, answers, texts)
        ends = {*self.policy.end_token_ids}
        trained = [
            not algorithm.mask_truncated_completions or bool(ends.intersection(rollout.token_ids[-1:]))
            for rollout in rollouts
        ]
        host = scored.host
        columns = (host.correct, host.rewards, host.counts, host.advantages, host.bonuses)
        numbers, keys = (x.tolist() for x in columns), host.keys.tolist()
        rows = zip(repeated, rollouts, answers, *numbers, spans, trained, keys, strict=True)
        return [Sample(*row) for row in rows], scored
