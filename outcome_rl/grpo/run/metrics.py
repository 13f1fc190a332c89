"""What a step's row of `metrics.jsonl` and its rows of `samples.jsonl` say.

`reward/`, `outcomes/` and `response/` speak of the batch, `train/` of everything sampled so far, `entropy/` and
`actor/` of the update, `rollout/` of how far an engine with arithmetic of its own is from the policy. "Distinct" counts
different answers; a response without an answer has none.
"""

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from outcome_rl.grpo.data.problems import Problem
from outcome_rl.grpo.rollout.engine import Rollouts
from outcome_rl.grpo.rollout.scoring import Scores, distinct_answers
from outcome_rl.grpo.update.stats import UpdateStats
from outcome_rl.outcomes.keys import NO_ANSWER
from outcome_rl_kernels import OutcomeCounts


def outcome_metrics(scores: Scores) -> dict[str, float]:
    """Rewards, answers and bonuses of a batch."""
    n = scores.correct.shape[1]
    no_answer = scores.outcome_keys == NO_ANSWER
    distinct = distinct_in_groups(scores.outcome_keys)
    num_correct = scores.correct.sum(dim=1)
    metrics = {
        "reward/mean": scores.correct.float().mean().item(),
        "reward/all_correct_groups": (num_correct == n).float().mean().item(),
        "reward/all_wrong_groups": (num_correct == 0).float().mean().item(),
        "outcomes/no_answer_rate": no_answer.float().mean().item(),
        "outcomes/unresolved": scores.unresolved,
        "outcomes/distinct_in_group": distinct.float().mean().item(),
        "exploration/bonus_mean": scores.groups.bonuses.mean().item(),
        "exploration/bonus_abs_mean": scores.groups.bonuses.abs().mean().item(),
    }
    for name, groups in (("solved", num_correct > 0), ("unsolved", num_correct == 0)):
        if groups.any():
            metrics[f"outcomes/distinct_in_group_{name}"] = distinct[groups].float().mean().item()
    return metrics


def distinct_in_groups(outcome_keys: Tensor) -> Tensor:
    """(B,) int64: the number of different answers in each group of outcome keys (B, n)."""
    ordered = outcome_keys.sort(dim=1).values
    with_none = 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(dim=1)
    return with_none - (outcome_keys == NO_ANSWER).any(dim=1).long()


def history_metrics(
    counts: OutcomeCounts, question_keys: Tensor, problems: Sequence[Problem], solved: Collection[str]
) -> dict[str, float]:
    """What all batches so far have found: over the training set, and per question over those that were sampled."""
    answers = distinct_answers(counts, question_keys)
    seen = counts.distinct(question_keys) > 0
    unsolved = seen & torch.tensor([problem.id not in solved for problem in problems])
    metrics = {
        "train/solved_fraction": len(solved) / len(problems),
        "train/distinct_answers": answers[seen].float().mean().item(),
    }
    if unsolved.any():
        metrics["train/distinct_answers_unsolved"] = answers[unsolved].float().mean().item()
    return metrics


def update_metrics(update: UpdateStats) -> dict[str, float]:
    """What the gradient step did."""
    return {
        "actor/loss": update.loss,
        "actor/kl": update.kl,
        "actor/grad_norm": update.grad_norm,
        "actor/lr": update.lr,
        **{f"actor/{name}": value for name, value in update.ratio.items()},
        **{f"entropy/{name}": value for name, value in update.entropy.items()},
        **{f"rollout/{name}": value for name, value in update.mismatch.items()},
    }


def length_metrics(rollouts: Rollouts, limit: int) -> dict[str, float]:
    """Lengths of the responses, and how many have as many tokens as they may."""
    lengths = rollouts.completion_mask.sum(dim=1)
    return {
        "response/tokens_mean": lengths.float().mean().item(),
        "response/at_limit": (lengths == limit).float().mean().item(),
    }


def sample_rows(scores: Scores, problems: Sequence[Problem], step: int, limit: int) -> list[dict[str, Any]]:
    """The first sample of each of the first `limit` questions of a batch, with everything that decided its
    advantage."""
    n = scores.correct.shape[1]
    counts = scores.groups.counts
    assert counts is not None
    rows = []
    for group, problem in enumerate(problems[:limit]):
        answer = scores.answers[group * n]
        rows.append(
            {
                "step": step,
                "question_id": problem.id,
                "question": problem.problem,
                "gold": problem.answer,
                "completion": scores.batch.rollouts.texts[group * n],
                "outcome": None if answer is None else answer.text,
                "reward": float(scores.correct[group, 0]),
                "count": int(counts[group, 0]),
                "bonus": float(scores.groups.bonuses[group, 0]),
                "advantage": float(scores.groups.advantages[group, 0]),
            }
        )
    return rows
