"""Every metric of a step by its value, from scores made by hand."""

import pytest
import torch

from outcome_rl.grpo.data.problems import Problem
from outcome_rl.grpo.rollout.engine import Rollouts
from outcome_rl.grpo.rollout.scoring import Scores, question_keys
from outcome_rl.grpo.run.metrics import (
    history_metrics,
    length_metrics,
    outcome_metrics,
    sample_rows,
    update_metrics,
)
from outcome_rl.grpo.update.microbatches import ScoredRollouts
from outcome_rl.grpo.update.stats import UpdateStats
from outcome_rl.outcomes.extraction import Answer
from outcome_rl.outcomes.keys import NO_ANSWER
from outcome_rl_kernels import GroupAdvantages, OutcomeCounts

PROBLEMS = [Problem("a", "A?", "10"), Problem("b", "B?", "20"), Problem("c", "C?", "30")]
# Question a: two right, one wrong, one without answer. b: two wrong answers and two without. c: all right.
KEYS = [[10, 10, 11, NO_ANSWER], [21, 22, NO_ANSWER, NO_ANSWER], [30, 30, 30, 30]]
CORRECT = [[True, True, False, False], [False] * 4, [True] * 4]
BONUSES = [[0.1, 0.1, 0.3, -0.1], [0.2, 0.2, -0.2, -0.2], [0.0] * 4]
LENGTHS = [3, 5, 5, 1, 2, 2, 2, 2, 4, 4, 5, 1]


def make_scores(chosen: slice = slice(None)) -> Scores:
    keys, correct = torch.tensor(KEYS[chosen]), torch.tensor(CORRECT[chosen])
    bonuses = torch.tensor(BONUSES[chosen])
    texts = [f"text {number}" for number in range(keys.numel())]
    tokens = torch.zeros(keys.numel(), 5, dtype=torch.long)
    mask = torch.arange(5)[None] < torch.tensor(LENGTHS[: keys.numel()])[:, None]
    rollouts = Rollouts(tokens, tokens.bool(), tokens, mask, texts)
    trained = torch.ones(keys.numel(), dtype=torch.bool)
    zeros = torch.zeros(keys.numel())
    batch = ScoredRollouts(rollouts, zeros, bonuses.reshape(-1), mask, correct.reshape(-1), trained)
    counts = torch.arange(keys.numel()).reshape(keys.shape)
    return Scores(
        batch=batch,
        groups=GroupAdvantages(advantages=correct.float() - 0.5, bonuses=bonuses, counts=counts),
        outcome_keys=keys,
        correct=correct,
        answers=[None if key == NO_ANSWER else Answer(str(key), 0, 2, "boxed") for key in keys.reshape(-1).tolist()],
        unresolved=2,
    )


def test_outcomes_of_the_batch() -> None:
    assert outcome_metrics(make_scores()) == pytest.approx(
        {
            "reward/mean": 6 / 12,
            "reward/all_correct_groups": 1 / 3,
            "reward/all_wrong_groups": 1 / 3,
            "outcomes/no_answer_rate": 3 / 12,
            "outcomes/unresolved": 2,
            "outcomes/distinct_in_group": (2 + 2 + 1) / 3,
            "outcomes/distinct_in_group_solved": (2 + 1) / 2,
            "outcomes/distinct_in_group_unsolved": 2,
            "exploration/bonus_mean": 0.4 / 12,
            "exploration/bonus_abs_mean": 1.4 / 12,
        }
    )


@pytest.mark.parametrize(
    ("chosen", "absent"),
    [(slice(1, 2), "outcomes/distinct_in_group_solved"), (slice(2, 3), "outcomes/distinct_in_group_unsolved")],
    ids=["none solved", "all solved"],
)
def test_a_group_that_does_not_occur_has_no_metric(chosen: slice, absent: str) -> None:
    metrics = outcome_metrics(make_scores(chosen))
    assert absent not in metrics
    assert len(metrics) == 9


def test_a_group_without_any_answer_has_none_distinct() -> None:
    scores = make_scores(slice(1, 2))._replace(outcome_keys=torch.full((1, 4), NO_ANSWER))
    metrics = outcome_metrics(scores)
    assert metrics["outcomes/no_answer_rate"] == 1
    assert metrics["outcomes/distinct_in_group"] == metrics["outcomes/distinct_in_group_unsolved"] == 0


def test_what_was_found_so_far() -> None:
    """Two answers of a (and none), one of b, nothing sampled of c."""
    counts = OutcomeCounts()
    keys = question_keys(PROBLEMS)
    counts.observe(keys[[0, 0, 0, 0, 1]], torch.tensor([10, 11, 11, NO_ANSWER, 21]))
    assert history_metrics(counts, keys, PROBLEMS, {"a"}) == pytest.approx(
        {
            "train/solved_fraction": 1 / 3,
            "train/distinct_answers": (2 + 1) / 2,
            "train/distinct_answers_unsolved": 1,
        }
    )
    assert "train/distinct_answers_unsolved" not in history_metrics(counts, keys, PROBLEMS, {"a", "b"})


def test_lengths() -> None:
    assert length_metrics(make_scores().batch.rollouts, 5) == pytest.approx(
        {"response/tokens_mean": 36 / 12, "response/at_limit": 3 / 12}
    )


def test_the_update() -> None:
    entropy, mismatch = {"all": 1.5, "incorrect": 1.75}, {"logp_diff_max": 0.125}
    ratio = {"ratio_mean": 1.125, "clip_fraction": 0.25}
    update = UpdateStats(0.5, 0.25, 2.0, 1e-6, entropy, ratio, mismatch, reference_s=3.0, update_s=4.0)
    assert update_metrics(update) == {
        "actor/loss": 0.5,
        "actor/kl": 0.25,
        "actor/grad_norm": 2.0,
        "actor/lr": 1e-6,
        "actor/ratio_mean": 1.125,
        "actor/clip_fraction": 0.25,
        "entropy/all": 1.5,
        "entropy/incorrect": 1.75,
        "rollout/logp_diff_max": 0.125,
    }


def test_samples_are_the_first_of_each_question() -> None:
    scores = make_scores()._replace(answers=[None, *make_scores().answers[1:]])
    rows = sample_rows(scores, PROBLEMS, step=7, limit=2)
    assert [row["outcome"] for row in rows] == [None, "21"]
    assert {**rows[1], "bonus": pytest.approx(0.2)} == {
        "step": 7,
        "question_id": "b",
        "question": "B?",
        "gold": "20",
        "completion": "text 4",
        "outcome": "21",
        "reward": 0.0,
        "count": 4,
        "bonus": rows[1]["bonus"],
        "advantage": -0.5,
    }
    assert sample_rows(scores, PROBLEMS, step=7, limit=0) == []
