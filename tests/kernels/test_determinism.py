"""Equal bits on the CPU, as the section Determinism of docs/losses.md states them."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import permutations
from typing import Any

import pytest
import torch
from loss_cases import make_case, run
from torch import Tensor

from outcome_rl_kernels import OutcomeCounts, Support, group_advantages, linear_logprobs, linear_policy_loss
from outcome_rl_kernels.backends import native_obstacle

IMPLS = ["reference", *([] if native_obstacle() else ["native"])]
BONUS: dict[str, Any] = {"bonus": "ucb+ucb_mean+batch", "coef": [0.5, 0.3, 0.2]}


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def equal(left: dict[str, Tensor | None], right: dict[str, Tensor | None]) -> bool:
    pairs = [(left[name], right[name]) for name in left]
    return all(a is b is None or (a is not None and b is not None and torch.equal(a, b)) for a, b in pairs)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("token_loss", ["ppo", "gspo", "cispo"])
@pytest.mark.parametrize("number", [1, 2])
def test_the_same_call_again_has_the_same_bits(impl: str, token_loss: str, number: int) -> None:
    case = make_case(3, torch.float32, {"token_loss": token_loss}, absent={"ref_logps"})
    with threads(number):
        first, second = (
            run(linear_policy_loss, case.operands, torch.float32, {"hidden", "weight"}, **case.inputs, **options)[1]
            for options in [{"token_loss": token_loss, "impl": impl}] * 2
        )
    assert equal(first, second)


@pytest.mark.parametrize("impl", IMPLS)
def test_a_token_in_another_batch_differs_by_rounding_alone(impl: str) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(64, 48, generator=generator), torch.randn(300, 48, generator=generator)
    labels = torch.randint(300, (64,), generator=generator)
    whole = linear_logprobs(hidden, weight, labels, impl=impl)[0]
    for rows in (slice(0, 1), slice(5, 40), slice(63, 64)):
        some = linear_logprobs(hidden[rows], weight, labels[rows], impl=impl)[0]
        torch.testing.assert_close(some, whole[rows], rtol=1e-6, atol=1e-5)


@pytest.mark.skipif(native_obstacle() is not None, reason="needs the native library")
def test_supports_do_not_depend_on_the_number_of_threads() -> None:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(40, 16, generator=generator, requires_grad=True)
    weight = torch.randn(30, 16, generator=generator, requires_grad=True)
    ids = torch.stack([torch.randperm(30, generator=generator)[:5] for _ in range(40)])
    support, found = Support(torch.arange(0, 201, 5), ids.flatten()), []
    for number in (1, 2, 5):
        with threads(number):
            logps, _ = linear_logprobs(hidden, weight, ids[:, 0], support=support)
            found.append([logps.detach(), *torch.autograd.grad(logps.sum(), (hidden, weight))])
    assert all(map(torch.equal, found[0], found[1]))
    assert all(map(torch.equal, found[0], found[2]))


@pytest.mark.parametrize("impl", IMPLS)
def test_a_group_in_another_batch_has_the_same_bits(impl: str) -> None:
    generator = torch.Generator().manual_seed(2)
    keys = torch.randint(0, 4, (6, 5), generator=generator)
    rewards = (keys == 1).float()
    questions = torch.arange(6)

    def scored(rows: list[int], number: int) -> list[Tensor]:
        with threads(number):
            result = group_advantages(rewards[rows], questions[rows], keys[rows], OutcomeCounts(impl=impl), **BONUS)
        return [result.advantages, result.bonuses]

    whole = scored([*range(6)], 1)
    for rows in ([4], [5, 0, 3], [*reversed(range(6))]):
        for number in (1, 3):
            assert all(torch.equal(some, every[rows]) for some, every in zip(scored(rows, number), whole, strict=True))


@pytest.mark.parametrize("impl", IMPLS)
def test_counts_do_not_depend_on_the_order_of_batches(impl: str) -> None:
    generator = torch.Generator().manual_seed(3)
    batches = [torch.randint(0, 4, (2, 4, 5), generator=generator) for _ in range(3)]
    tables = []
    for order in permutations(batches):
        counts = OutcomeCounts(impl=impl)
        for questions, keys in order:
            group_advantages((keys == 1).float(), questions[:, 0], keys, counts, **BONUS)
        tables.append(counts.items())
    assert all(all(map(torch.equal, tables[0], table)) for table in tables)
