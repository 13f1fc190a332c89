"""Texts become outcomes, counts, rewards, bonuses and masks that belong to one another."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.data.problems import Problem
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.engine import Rollouts
from outcome_rl.grpo.rollout.scoring import Scorer, distinct_answers, question_keys
from outcome_rl.outcomes.keys import NO_ANSWER, outcome_key, question_key
from outcome_rl.outcomes.matcher import OutcomeMatcher
from outcome_rl_kernels import OutcomeCounts

PROBLEMS = [Problem("a", "?", "4"), Problem("b", "?", "7")]
# Group a: right, wrong, wrong the same, no answer; group b: all right.
RESPONSES = [r"1 + 3 = 4 \boxed{ 4 }", r"\boxed{ 5 }", r"2 \boxed{ 5 }", "1 + 3", *[r"\boxed{ 7 }"] * 4]
MakeScorer = Callable[..., Scorer]


@pytest.fixture
def make_scorer(small_config: Callable[..., TrainConfig], tmp_path: Path, shared_policy: Policy) -> MakeScorer:
    def make(*overrides: str) -> Scorer:
        config = small_config(tmp_path, "exploration.coef=0.2", *overrides)
        ends = shared_policy.end_token_ids
        return Scorer(config, shared_policy.tokenizer, ends, OutcomeMatcher(), OutcomeCounts())

    return make


@pytest.fixture(scope="module")
def rollouts(shared_policy: Policy) -> Rollouts:
    tokenizer = shared_policy.tokenizer
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id] for text in RESPONSES]
    width = max(map(len, ids))
    completion_ids = torch.tensor([row + [tokenizer.pad_token_id] * (width - len(row)) for row in ids])
    mask = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in ids])
    prompt = torch.ones(len(ids), 1, dtype=torch.long)
    return Rollouts(prompt, prompt.bool(), completion_ids, mask, RESPONSES)


def test_outcomes_and_rewards(make_scorer: MakeScorer, rollouts: Rollouts) -> None:
    scores = make_scorer().score(PROBLEMS, rollouts)
    assert scores.correct.tolist() == [[True, False, False, False], [True] * 4]
    five = outcome_key("5")
    assert scores.outcome_keys.tolist() == [[outcome_key("4"), five, five, NO_ANSWER], [outcome_key("7")] * 4]
    rewards = torch.tensor([1.0, 0, 0, 0])
    torch.testing.assert_close(scores.groups.advantages[0], (rewards - 0.25) / (rewards.std() + 1e-6))
    assert scores.groups.advantages[1].tolist() == [0.0] * 4
    assert torch.equal(scores.batch.advantages, scores.groups.advantages.reshape(-1))
    assert torch.equal(scores.batch.correct, scores.correct.reshape(-1))


def test_bonuses_follow_the_counts(make_scorer: MakeScorer, rollouts: Rollouts) -> None:
    scorer = make_scorer("exploration.bonus=ucb_con", "exploration.baseline=0.5")
    first, second = scorer.score(PROBLEMS, rollouts), scorer.score(PROBLEMS, rollouts)
    assert first.groups.counts is not None
    assert second.groups.counts is not None
    assert first.groups.counts.tolist() == [[0] * 4, [0] * 4]
    assert second.groups.counts.tolist() == [[1, 2, 2, 1], [4] * 4]
    # c (min(1, N^-1/2) - b0); 0 without an answer, less the baseline; nothing where all are correct.
    torch.testing.assert_close(first.groups.bonuses[0], 0.2 * (torch.tensor([1.0, 1, 1, 0]) - 0.5))
    torch.testing.assert_close(second.groups.bonuses[0], 0.2 * (torch.tensor([1.0, 0.5**0.5, 0.5**0.5, 0]) - 0.5))
    assert second.groups.bonuses[1].tolist() == [0.0] * 4


def test_dr_grpo_leaves_out_the_division(make_scorer: MakeScorer, rollouts: Rollouts) -> None:
    scores = make_scorer("algorithm.norm_adv_by_std_in_grpo=false").score(PROBLEMS, rollouts)
    torch.testing.assert_close(scores.groups.advantages[0], torch.tensor([0.75, -0.25, -0.25, -0.25]))


def test_a_sum_of_methods_takes_a_coefficient_each(make_scorer: MakeScorer, rollouts: Rollouts) -> None:
    scores = make_scorer("exploration.bonus=ucb+batch", "exploration.coef=[1,10]").score(PROBLEMS, rollouts)
    torch.testing.assert_close(scores.groups.bonuses[0], torch.tensor([1.0, 1.0 - 2.5, 1.0 - 2.5, 0.0]))


def test_the_answer_mask_covers_the_answer(make_scorer: MakeScorer, rollouts: Rollouts, shared_policy: Policy) -> None:
    scores = make_scorer().score(PROBLEMS, rollouts)
    masked = [
        shared_policy.tokenizer.decode(ids[mask])
        for ids, mask in zip(rollouts.completion_ids, scores.batch.answer_mask, strict=True)
    ]
    assert masked == ["4", "5", "5", "", "7", "7", "7", "7"]
    assert not scores.batch.answer_mask[~rollouts.completion_mask].any()
    unmasked = make_scorer("exploration.answer_mask_mode=none").score(PROBLEMS, rollouts)
    assert not unmasked.batch.answer_mask.any()


def test_no_answer_is_no_distinct_answer(make_scorer: MakeScorer, rollouts: Rollouts) -> None:
    scorer = make_scorer()
    scorer.score(PROBLEMS, rollouts)
    keys = question_keys([*PROBLEMS, Problem("never seen", "?", "1")])
    assert distinct_answers(scorer.counts, keys).tolist() == [2, 1, 0]


def test_outcomes_are_counted_under_their_questions(make_scorer: MakeScorer, rollouts: Rollouts) -> None:
    scorer = make_scorer()
    scorer.score(PROBLEMS, rollouts)
    assert question_keys(PROBLEMS).tolist() == [question_key("a"), question_key("b")]
    assert scorer.counts.distinct(question_keys(PROBLEMS)).tolist() == [3, 1]
