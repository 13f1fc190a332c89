"""The specification of group advantages against numbers worked out by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl_kernels.advantages.reference import (
    BONUS_METHODS,
    GroupSettings,
    exploration_bonuses,
    exploration_signal,
    historical_bonus,
    reward_advantages,
)

F64 = torch.float64


def rows(*values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=F64)


class TestRewardAdvantages:
    def test_one_of_four_correct(self) -> None:
        # mean 1/4, squared deviations 9/16 + 3/16 = 3/4, sample variance 1/4, std 1/2
        got = reward_advantages(rows([1, 0, 0, 0]), eps=0.0)
        torch.testing.assert_close(got, rows([1.5, -0.5, -0.5, -0.5]))

    def test_population_deviation(self) -> None:
        # population variance 3/16, std sqrt(3)/4
        got = reward_advantages(rows([1, 0, 0, 0]), ddof=0, eps=0.0)
        torch.testing.assert_close(got, rows([3, -1, -1, -1]) / math.sqrt(3))

    def test_eps_is_added_to_the_deviation(self) -> None:
        got = reward_advantages(rows([1, 0, 0, 0]), eps=0.5)
        torch.testing.assert_close(got, rows([0.75, -0.25, -0.25, -0.25]))

    def test_dr_grpo_leaves_the_scale(self) -> None:
        torch.testing.assert_close(
            reward_advantages(rows([1, 0, 0, 0]), scale="none"), rows([0.75, -0.25, -0.25, -0.25])
        )

    @pytest.mark.parametrize("scale", ["std", "none"])
    def test_equal_rewards_give_exact_zero(self, scale: str) -> None:
        # The mean of three times 0.1 is not 0.1 in binary: without the rule, rounding noise is divided by eps.
        rewards = torch.full((1, 3), 0.1, dtype=torch.float32)
        assert torch.equal(reward_advantages(rewards, scale=scale), torch.zeros(1, 3))

    def test_a_single_sample_has_no_advantage(self) -> None:
        assert torch.equal(reward_advantages(rows([1])), rows([0]))

    @given(st.lists(st.integers(0, 1), min_size=2, max_size=16))
    def test_matches_torch_std(self, group: list[int]) -> None:
        rewards = rows(list(map(float, group)))
        expected = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        torch.testing.assert_close(reward_advantages(rewards), expected, atol=1e-12, rtol=1e-9)


class TestSignals:
    # outcomes: "7" three times seen twice before, "8" once and new, and a response without an answer
    outcomes = torch.tensor([[7, 7, 7, 8, 0]])
    counts = torch.tensor([[4, 4, 4, 0, 9]])

    def signal(self, method: str, **kwargs: object) -> list[float]:
        settings = GroupSettings((method,), (1.0,), **kwargs)  # type: ignore[arg-type]
        return exploration_signal(method, self.outcomes, self.counts, settings, F64)[0].tolist()

    def test_raw_bonus(self) -> None:
        counts = torch.tensor([[0, 1, 2, 4, 10_000]])
        torch.testing.assert_close(historical_bonus(counts, F64), rows([1, 1, 2**-0.5, 0.5, 0.01]))

    def test_none(self) -> None:
        assert self.signal("none") == [0, 0, 0, 0, 0]

    def test_ucb(self) -> None:
        assert self.signal("ucb") == pytest.approx([0.5, 0.5, 0.5, 1, 0])

    def test_ucb_counts_no_answer_when_told_so(self) -> None:
        assert self.signal("ucb", no_answer="own_class") == pytest.approx([0.5, 0.5, 0.5, 1, 1 / 3])

    def test_ucb_con(self) -> None:
        assert self.signal("ucb_con", baseline=0.5) == pytest.approx([0, 0, 0, 0.5, -0.5])
        assert self.signal("ucb_con", baseline=1.0) == pytest.approx([-0.5, -0.5, -0.5, 0, -1])

    def test_ucb_mean_is_leave_one_out(self) -> None:
        # raw .5 .5 .5 1 0, sum 2.5: others' means are 2/4, 2/4, 2/4, 1.5/4, 2.5/4
        assert self.signal("ucb_mean") == pytest.approx([0, 0, 0, 1 - 0.375, -0.625])

    def test_ucb_mean_of_one_sample_is_zero(self) -> None:
        settings = GroupSettings(("ucb_mean",), (1.0,))
        assert exploration_signal("ucb_mean", torch.tensor([[7]]), torch.tensor([[3]]), settings, F64).item() == 0

    def test_batch(self) -> None:
        assert self.signal("batch") == pytest.approx([-0.4, -0.4, -0.4, 0, 0])

    def test_batch_treats_no_answer_as_a_class(self) -> None:
        signal = exploration_signal("batch", torch.tensor([[0, 0, 5]]), None, GroupSettings(("batch",), (1.0,)), F64)
        assert signal[0].tolist() == pytest.approx([-1 / 3, -1 / 3, 0])

    def test_batch_positive(self) -> None:
        assert self.signal("batch_positive") == [0, 0, 0, 1, 0]
        assert self.signal("batch_positive", no_answer="own_class") == [0, 0, 0, 1, 1]

    @pytest.mark.parametrize("method", ["ucb", "ucb_mean", "ucb_con"])
    def test_history_needs_counts(self, method: str) -> None:
        with pytest.raises(ValueError, match="needs the historical counts"):
            exploration_signal(method, self.outcomes, None, GroupSettings((method,), (1.0,)), F64)


class TestBonuses:
    outcomes = torch.tensor([[7, 7], [7, 9]])
    counts = torch.tensor([[4, 4], [4, 0]])
    solved = torch.tensor([True, False])

    def bonuses(self, methods: list[str], coefs: list[float], **kwargs: object) -> list[list[float]]:
        settings = GroupSettings(tuple(methods), tuple(coefs), **kwargs)  # type: ignore[arg-type]
        return exploration_bonuses(self.outcomes, self.counts, self.solved, settings, F64).tolist()

    def test_all_correct_group_keeps_ucb_and_batch(self) -> None:
        assert self.bonuses(["ucb"], [0.2]) == [pytest.approx([0.1, 0.1]), pytest.approx([0.1, 0.2])]
        assert self.bonuses(["batch"], [0.2]) == [pytest.approx([-0.1, -0.1]), [0, 0]]

    @pytest.mark.parametrize("method", ["ucb_mean", "ucb_con"])
    def test_all_correct_group_zeroes_the_baselined_methods(self, method: str) -> None:
        assert self.bonuses([method], [1.0])[0] == [0, 0]
        assert self.bonuses([method], [1.0])[1] != [0, 0]

    def test_the_rule_can_be_forced_either_way(self) -> None:
        assert self.bonuses(["batch"], [1.0], zero_when_all_correct=True)[0] == [0, 0]
        assert self.bonuses(["ucb_con"], [1.0], zero_when_all_correct=False, baseline=1.0)[0] == pytest.approx(
            [-0.5, -0.5]
        )

    def test_methods_add_up_with_their_own_coefficients(self) -> None:
        total = self.bonuses(["ucb_con", "batch"], [0.2, 0.5])
        parts = [self.bonuses(["ucb_con"], [0.2]), self.bonuses(["batch"], [0.5])]
        for i in range(2):
            assert total[i] == pytest.approx([a + b for a, b in zip(parts[0][i], parts[1][i], strict=True)])

    @given(
        st.sampled_from(BONUS_METHODS),
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), min_size=1, max_size=12),
        st.booleans(),
    )
    def test_equal_outcomes_get_equal_bonuses(
        self, method: str, group: list[tuple[int, int]], all_correct: bool
    ) -> None:
        count_of = dict(group)
        outcomes = torch.tensor([[outcome for outcome, _ in group]])
        counts = torch.tensor([[count_of[outcome] for outcome, _ in group]])
        settings = GroupSettings((method,), (1.0,))
        bonuses = exploration_bonuses(outcomes, counts, torch.tensor([all_correct]), settings, F64)[0]
        assert bonuses.isfinite().all()
        assert bonuses.abs().max() <= 1
        for outcome in outcomes.unique():
            same = bonuses[outcomes[0] == outcome]
            assert torch.allclose(same, same[:1], atol=1e-12)
