"""Equal bits on the CPU, as the section Determinism of docs/losses.md states them."""

from typing import Any

import pytest
import torch
from loss_cases import threads
from torch import Tensor

from outcome_rl_kernels import OutcomeCounts, group_advantages, linear_logprobs
from outcome_rl_kernels.backends import native_obstacle

IMPLS = ["reference", *([] if native_obstacle() else ["native"])]
BONUS: dict[str, Any] = {"adv_estimator": "grpo", "bonus": "0.5*ucb + 0.3*ucb_mean + 0.2*batch"}


@pytest.mark.parametrize("impl", IMPLS)
def test_a_token_in_another_batch_differs_by_rounding_alone(impl: str) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(64, 48, generator=generator), torch.randn(300, 48, generator=generator)
    labels = torch.randint(300, (64,), generator=generator)
    whole = linear_logprobs(hidden, weight, labels, impl=impl)[0]
    for rows in (slice(0, 1), slice(5, 40), slice(63, 64)):
        some = linear_logprobs(hidden[rows], weight, labels[rows], impl=impl)[0]
        torch.testing.assert_close(some, whole[rows], rtol=1e-6, atol=1e-5)


def test_a_group_in_another_batch_has_the_same_bits() -> None:
    generator = torch.Generator().manual_seed(2)
    keys = torch.randint(0, 4, (6, 5), generator=generator)
    rewards = (keys == 1).float()
    questions = torch.arange(6)

    def scored(rows: list[int], number: int) -> list[Tensor]:
        with threads(number):
            result = group_advantages(rewards[rows], questions[rows], keys[rows], OutcomeCounts(), **BONUS)
        return [result.advantages, result.bonuses]

    whole = scored([*range(6)], 1)
    for rows in ([4], [5, 0, 3], [*reversed(range(6))]):
        for number in (1, 3):
            assert all(torch.equal(some, every[rows]) for some, every in zip(scored(rows, number), whole, strict=True))
