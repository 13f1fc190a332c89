"""From response texts to advantages: extract, classify, count, and reward what is correct or rarely seen."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.data.problems import Problem
from outcome_rl.grpo.rollout.engine import Rollouts
from outcome_rl.grpo.update.microbatches import ScoredRollouts
from outcome_rl.outcomes.answer_mask import Tokenizer, answer_mask
from outcome_rl.outcomes.extraction import Answer
from outcome_rl.outcomes.keys import NO_ANSWER, question_key
from outcome_rl.outcomes.matcher import OutcomeMatcher
from outcome_rl_kernels import GroupAdvantages, OutcomeCounts, group_advantages


class Scores(NamedTuple):
    """A scored batch: B questions with n responses each."""

    batch: ScoredRollouts
    groups: GroupAdvantages  # (B, n) each
    outcome_keys: Tensor  # (B, n) int64
    correct: Tensor  # (B, n) bool
    answers: list[Answer | None]  # B * n
    unresolved: int  # comparisons that timed out or failed

    @classmethod
    def join(cls, parts: Sequence["Scores"]) -> "Scores":
        """Several scored batches as one."""
        batches, groups, outcome_keys, correct, answers, unresolved = zip(*parts, strict=True)
        advantages, bonuses, counts = zip(*groups, strict=True)
        return cls(
            ScoredRollouts.join(batches),
            GroupAdvantages(torch.cat(advantages), torch.cat(bonuses), torch.cat(counts)),
            torch.cat(outcome_keys),
            torch.cat(correct),
            [answer for part in answers for answer in part],
            sum(unresolved),
        )


class Scorer:
    """Scores rollouts against historical counts, which it updates."""

    def __init__(
        self,
        config: TrainConfig,
        tokenizer: Tokenizer,
        end_token_ids: Sequence[int],
        matcher: OutcomeMatcher,
        counts: OutcomeCounts,
    ) -> None:
        """
        Args:
            end_token_ids: tokens one of which ends a response that was not cut off.
        """
        self.config = config
        self.tokenizer = tokenizer
        self.end_token_ids = torch.tensor(end_token_ids)
        self.matcher = matcher
        self.counts = counts

    def score(self, problems: Sequence[Problem], rollouts: Rollouts) -> Scores:
        """Score the n responses to each problem.

        Outcomes and counts stay on the CPU; advantages, bonuses and masks go to the device of the rollouts.
        """
        n = self.config.rollout.n
        shape = (len(problems), n)
        outcomes = distributed.on_rank_zero(
            lambda: self.matcher.classify(
                [f"train:{problem.id}" for problem in problems for _ in range(n)],
                rollouts.texts,
                [problem.answer for problem in problems for _ in range(n)],
            )
        )
        outcome_keys = torch.as_tensor(outcomes.keys).reshape(shape)
        correct = torch.as_tensor(outcomes.correct).reshape(shape)
        groups = group_advantages(
            correct.float(),
            question_keys(problems),
            outcome_keys,
            self.counts,
            correct=correct,
            **self.config.exploration.group_settings,
            scale="std" if self.config.algorithm.norm_adv_by_std_in_grpo else "none",
        )
        device = rollouts.completion_ids.device
        batch = ScoredRollouts(
            rollouts=rollouts,
            advantages=groups.advantages.reshape(-1).to(device),
            bonuses=groups.bonuses.reshape(-1).to(device),
            answer_mask=self._answer_mask(rollouts, outcomes.answers).to(device),
            correct=correct.reshape(-1).to(device),
            trained=self._trained(rollouts),
        )
        return Scores(batch, groups, outcome_keys, correct, outcomes.answers, outcomes.unresolved)

    def _trained(self, rollouts: Rollouts) -> Tensor:
        if not self.config.algorithm.mask_truncated_completions:
            return torch.ones(len(rollouts.texts), dtype=torch.bool)
        last = rollouts.completion_mask.sum(dim=1, keepdim=True) - 1
        return torch.isin(rollouts.completion_ids.gather(1, last)[:, 0].cpu(), self.end_token_ids)

    def _answer_mask(self, rollouts: Rollouts, answers: list[Answer | None]) -> Tensor:
        if self.config.exploration.answer_mask_mode == "none":
            return torch.zeros_like(rollouts.completion_mask)
        return answer_mask(self.tokenizer, rollouts.completion_ids, answers)


def question_keys(problems: Sequence[Problem]) -> Tensor:
    """Under what each problem's outcomes are counted, (Q,) int64."""
    return torch.tensor([question_key(problem.id) for problem in problems])


def distinct_answers(counts: OutcomeCounts, questions: Tensor) -> Tensor:
    """Number of different answers seen so far for each question (Q,), given by key; "no answer" is not one."""
    no_answer = counts.lookup(questions, torch.full_like(questions, NO_ANSWER)) > 0
    return counts.distinct(questions) - no_answer.long()
