"""group_advantages: counting before the batch, options, and errors that leave the counts alone."""

import math
from typing import Any

import pytest
import torch

from outcome_rl_kernels import OutcomeCounts, group_advantages, parse_bonus

QUESTIONS = torch.tensor([11, 22])
OUTCOMES = torch.tensor([[1, 1, 2, 0], [1, 3, 3, 3]])
REWARDS = torch.tensor([[0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 1.0]])


def call(counts: OutcomeCounts | None = None, **kwargs: Any) -> Any:
    return group_advantages(REWARDS, QUESTIONS, OUTCOMES, counts, **kwargs)


def test_two_steps_by_hand() -> None:
    counts = OutcomeCounts()
    first = call(counts, bonus="ucb", coef=0.5)
    assert first.counts.tolist() == [[0, 0, 0, 0], [0, 0, 0, 0]]
    assert first.bonuses.tolist() == [[0.5, 0.5, 0.5, 0.0], [0.5, 0.5, 0.5, 0.5]]
    torch.testing.assert_close(first.advantages[0], torch.tensor([-0.5, -0.5, 1.5, -0.5]), atol=1e-5, rtol=0)
    second = call(counts, bonus="ucb", coef=0.5)
    assert second.counts.tolist() == [[2, 2, 1, 1], [1, 3, 3, 3]]
    torch.testing.assert_close(second.bonuses[1], 0.5 * torch.tensor([1.0, 3**-0.5, 3**-0.5, 3**-0.5]))
    assert len(counts) == 5  # no answer is counted too


def test_a_question_in_two_groups_sees_the_same_counts() -> None:
    counts = OutcomeCounts()
    outcomes = torch.tensor([[5, 5], [5, 6]])
    result = group_advantages(torch.zeros(2, 2), torch.tensor([7, 7]), outcomes, counts)
    assert result.counts is not None
    assert result.counts.tolist() == [[0, 0], [0, 0]]
    assert counts.lookup(torch.tensor([7, 7]), outcomes).tolist() == [[3, 3], [3, 1]]


def test_update_false_only_reads() -> None:
    counts = OutcomeCounts()
    call(counts)
    again = call(counts, update=False)
    assert again.counts is not None
    assert torch.equal(again.counts, call(counts, update=False).counts)


def test_all_correct_defaults_to_positive_rewards_and_can_be_given() -> None:
    ones = torch.ones(1, 2)
    keys = torch.tensor([[4, 9]])
    args = (ones, torch.tensor([1]), keys)
    assert group_advantages(*args, OutcomeCounts(), bonus="ucb_con").bonuses.tolist() == [[0, 0]]
    wrong = torch.zeros(1, 2, dtype=torch.bool)
    with_format_reward = group_advantages(*args, OutcomeCounts(), bonus="ucb_con", coef=1.0, correct=wrong)
    assert with_format_reward.bonuses.tolist() == [[0.5, 0.5]]


def test_sum_of_methods() -> None:
    result = call(OutcomeCounts(), bonus="ucb_con+batch", coef=(1.0, 2.0), baseline=0.5)
    expected = torch.tensor([[0.5 - 0.5, 0.5 - 0.5, 0.5, -0.5], [0.5, 0.5 - 1, 0.5 - 1, 0.5 - 1]])
    torch.testing.assert_close(result.bonuses, expected)


def test_batch_needs_no_counts() -> None:
    result = call(bonus="batch", coef=1.0)
    assert result.counts is None
    assert result.bonuses[0].tolist() == [-0.25, -0.25, 0, 0]


def test_no_bonus_still_counts_for_the_statistics() -> None:
    counts = OutcomeCounts()
    assert not call(counts, bonus="none").bonuses.any()
    assert len(counts) == 5


def test_dtype_follows_the_rewards_and_carries_no_gradient() -> None:
    rewards = REWARDS.double().requires_grad_()
    result = group_advantages(rewards, QUESTIONS, OUTCOMES, OutcomeCounts())
    assert result.advantages.dtype == result.bonuses.dtype == torch.float64
    assert not result.advantages.requires_grad


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"bonus": "ucb_com"}, ValueError, "bonus must be one of 'none', 'ucb'"),
        ({"bonus": "ucb+none"}, ValueError, "'none' only alone"),
        ({"bonus": "ucb+ucb"}, ValueError, "name each method once"),
        ({"coef": -1.0}, ValueError, "coef must be finite and >= 0; got -1.0"),
        ({"coef": math.inf}, ValueError, "coef must be finite and >= 0; got inf"),
        ({"coef": (0.1, "x"), "bonus": "ucb+batch"}, TypeError, "coef must be a Python number; got str"),
        ({"coef": torch.tensor(0.1)}, TypeError, r"coef must be a Python number; got Tensor. Use coef\.item\(\)"),
        ({"baseline": math.nan}, ValueError, "baseline must be finite; got nan"),
        ({"baseline": None}, TypeError, "baseline must be a Python number; got NoneType"),
        ({"eps": -1e-6}, ValueError, "eps must be finite and >= 0; got -1e-06"),
        ({"eps": "1e-6"}, TypeError, "eps must be a Python number; got str"),
        ({"zero_when_all_correct": "no"}, TypeError, "zero_when_all_correct must be True, False or None; got 'no'"),
        ({"coef": (1.0, 2.0)}, ValueError, "one for each of"),
        ({"scale": "mean"}, ValueError, "scale must be 'std' or 'none'"),
        ({"ddof": 2}, ValueError, "ddof must be 0 or 1"),
        ({"no_answer": "drop"}, ValueError, "no_answer must be"),
        ({"correct": torch.ones(2, 4)}, TypeError, "correct must have dtype bool"),
        ({"impl": "triton"}, ValueError, "plain PyTorch is the only implementation of group_advantages"),
    ],
)
def test_errors_leave_the_counts_alone(kwargs: dict[str, Any], error: type[Exception], message: str) -> None:
    counts = OutcomeCounts()
    with pytest.raises(error, match=message):
        call(counts, **kwargs)
    assert len(counts) == 0


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((REWARDS.tolist(), QUESTIONS, OUTCOMES), TypeError, "rewards must be a torch.Tensor; got list"),
        ((REWARDS.long(), QUESTIONS, OUTCOMES), TypeError, "rewards must have dtype"),
        ((REWARDS[0], QUESTIONS, OUTCOMES), ValueError, r"rewards must have shape \(B, n\)"),
        ((REWARDS, QUESTIONS, OUTCOMES[:1]), ValueError, "outcome_keys must have the shape of rewards"),
        ((REWARDS, QUESTIONS[:1], OUTCOMES), ValueError, r"question_keys must have shape \(B,\) = \(2,\)"),
        ((REWARDS, QUESTIONS.int(), OUTCOMES), TypeError, "question_keys must have dtype int64"),
    ],
)
def test_shapes_and_dtypes(args: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        group_advantages(*args, OutcomeCounts())


def test_history_without_counts() -> None:
    with pytest.raises(ValueError, match="pass counts=OutcomeCounts"):
        call(bonus="ucb_con")


def test_parse_bonus() -> None:
    assert parse_bonus("ucb_con + batch") == ("ucb_con", "batch")
