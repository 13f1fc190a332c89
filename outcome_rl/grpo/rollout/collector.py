"""The responses that one update learns from: sampled, scored and counted, and with dynamic sampling until enough of
them have something to teach.

A group whose advantages and bonuses are all zero has no policy gradient. DAPO's dynamic sampling (arXiv:2503.14476,
section 3.2) leaves such groups out and samples on until a batch of others is there. Two things differ here:

- Everything sampled is counted, scored and reported before anything is left out: a rare answer is found once.
- The rule is the gradient, not the rewards: a group of wrong answers alone stays where its bonuses explore.
"""

import time
from typing import NamedTuple

from torch import Tensor

from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.data.problems import BatchOrder, Problem, derive_seed
from outcome_rl.grpo.data.prompts import Prompts
from outcome_rl.grpo.rollout.engine import RolloutEngine
from outcome_rl.grpo.rollout.scoring import Scorer, Scores
from outcome_rl.grpo.update.microbatches import ScoredRollouts
from outcome_rl_kernels import GroupAdvantages


class Collected(NamedTuple):
    """What was sampled for one update, and the part of it that teaches."""

    problems: list[Problem]  # B, those of several batches one after another
    scores: Scores  # of all of them
    batch: ScoredRollouts  # what the update learns from: all, or the groups that were chosen
    metrics: dict[str, float]
    rollout_s: float
    outcomes_s: float


class Collector:
    """Draws batches of questions in order, and everything that comes of them up to the advantages."""

    def __init__(
        self,
        config: TrainConfig,
        prompts: Prompts,
        order: BatchOrder,
        engine: RolloutEngine,
        scorer: Scorer,
        drawn: int,
    ) -> None:
        """
        Args:
            drawn: batches that the run has drawn so far: the place in the data, and in the seeds of sampling.
        """
        self.config = config
        self.prompts = prompts
        self.order = order
        self.engine = engine
        self.scorer = scorer
        self.drawn = drawn
        self.torn = False  # whether some of a step that did not come to its end was counted: no state to be saved

    def collect(self) -> Collected:
        """Sample for one update.

        Raises:
            EngineDied: the engine did; `torn` if that was between two batches of one update.
        """
        filter_groups, wanted = self.config.algorithm.filter_groups, self.config.data.train_batch_size
        most = filter_groups.max_num_gen_batches if filter_groups.enable else 1
        problems: list[Problem] = []
        parts: list[Scores] = []
        rollout_s = outcomes_s = 0.0
        found = 0
        while len(parts) < most and found < wanted:
            start = time.perf_counter()
            self.torn = bool(parts)
            number = self.drawn + len(parts) + 1
            chosen = self.order.batch(number)
            rollouts = self.engine.generate(
                [self.prompts.ids[i] for i in chosen],
                self.config.rollout,
                self.config.data.max_response_length,
                derive_seed(self.config.trainer.seed, "rollout", number),
            )
            rolled_out = time.perf_counter()
            of_batch = [self.prompts.problems[i] for i in chosen]
            parts.append(self.scorer.score(of_batch, rollouts))
            problems += of_batch
            found += int(informative_groups(parts[-1].groups).sum())
            rollout_s += rolled_out - start
            outcomes_s += time.perf_counter() - rolled_out
        self.drawn += len(parts)
        self.torn = False
        scores = Scores.join(parts)
        batch, metrics = scores.batch, {}
        if filter_groups.enable:
            groups = informative_groups(scores.groups).nonzero()[:wanted, 0].tolist()
            batch = batch.groups(groups, self.config.rollout.n)
            metrics = {"sampling/batches": len(parts), "sampling/informative_groups": found / len(problems)}
        return Collected(problems, scores, batch, metrics, rollout_s, outcomes_s)


def informative_groups(groups: GroupAdvantages) -> Tensor:
    """Which questions have a policy gradient, (B,) bool."""
    return ((groups.advantages + groups.bonuses) != 0).any(dim=1)
