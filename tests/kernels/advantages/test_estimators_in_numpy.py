"""Estimators of 2026 against their formulas, written a second time in numpy with the history that they read.

Each of 500 random runs has several steps, stops and goes on from a saved state, and is counted by a second table of
another implementation, as another rank would, from groups in another order.
"""

import math
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from outcome_rl_kernels import OutcomeCounts, group_advantages
from outcome_rl_kernels.advantages.estimators import ADV_ESTIMATORS

EPS, RUNS = 1e-6, 500
Numbers = NDArray[Any]


class Group(NamedTuple):
    rewards: Numbers
    correct: Numbers
    keys: Numbers
    visits: int
    successes: int


def standardised(rewards: Numbers) -> Numbers:
    deviations = rewards - np.mean(rewards)
    return np.zeros_like(rewards) if np.ptp(rewards) == 0 else deviations / (np.std(rewards, ddof=1) + EPS)


def f_grpo(group: Group, gamma: float) -> Numbers:
    return standardised(group.rewards) * (1 - np.mean(group.correct)) ** gamma


def rs_grpo(group: Group, beta: float) -> Numbers:
    return (np.exp(beta * group.rewards) / np.mean(np.exp(beta * group.rewards)) - 1) / beta


def rare_correct(group: Group, alpha: float) -> Numbers:
    advantages, right = standardised(group.rewards), np.flatnonzero(group.correct)
    rarity = {i: np.sum(group.keys[right] == group.keys[i]) ** -alpha for i in right}
    for i in right:
        advantages[i] *= len(right) * rarity[i] / sum(rarity.values())
    return advantages


def log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def bbg(group: Group, k: int, tau: float) -> Numbers:
    """k E[(1 - x)^(k-1)] over Beta(m + 1, n - m + 1), by Beta functions."""
    n = len(group.rewards)

    def utility(m: int) -> float:
        return k * math.exp(log_beta(m + 1, n - m + k) - log_beta(m + 1, n - m + 1))

    found = utility(max(int(group.correct.sum()), 1))
    return standardised(group.rewards) * (found / utility(1) if found >= tau * (n + 1) else 0.0)


def beta_bernoulli(group: Group) -> Numbers:
    right = int(group.correct.sum())
    alpha, beta = 1 + group.successes + right, 1 + group.visits - group.successes + len(group.keys) - right
    p = alpha / (alpha + beta)
    return (group.correct - p) / (math.sqrt(p * (1 - p)) + EPS)


# Name -> the formula, and how its numbers are drawn.
ORACLES: dict[str, tuple[Any, dict[str, Any]]] = {
    "f_grpo": (f_grpo, {"gamma": lambda draw: draw.uniform(0, 2)}),
    "rs_grpo": (rs_grpo, {"beta": lambda draw: float(draw.choice([-1, 1]) * draw.uniform(0.1, 8))}),
    "rare_correct": (rare_correct, {"alpha": lambda draw: draw.uniform(0, 1.5)}),
    "bbg": (bbg, {"k": lambda draw: int(draw.integers(2, 40)), "tau": lambda draw: draw.uniform(0, 0.2)}),
    "beta_bernoulli": (beta_bernoulli, {}),
}


def random_batch(draw: np.random.Generator) -> dict[str, torch.Tensor]:
    """One to four groups of three questions; several answers are correct, and rewards differ from correctness."""
    B, n = draw.integers(1, 5), draw.integers(1, 9)
    keys = draw.integers(0, 6, (B, n))
    correct = (keys >= 1) & (keys <= draw.integers(0, 6, (B, 1)))
    rewards = correct + draw.choice([0.0, 0.1, -0.5]) * draw.integers(0, 2, (B, n))
    columns = {"question_keys": draw.integers(0, 3, B), "outcome_keys": keys, "correct": correct, "rewards": rewards}
    return {name: torch.from_numpy(np.asarray(column)) for name, column in columns.items()}


@pytest.mark.parametrize("name", ORACLES)
def test_advantages_are_those_of_the_formula(name: str) -> None:
    formula, numbers = ORACLES[name]
    for seed in range(RUNS):
        draw = np.random.default_rng(seed)
        given = {number: drawn(draw) for number, drawn in numbers.items()}
        estimator = f"{name}({', '.join(f'{number}={value!r}' for number, value in given.items())})"
        counts, other = OutcomeCounts(64), OutcomeCounts(impl="reference")
        visits, successes = defaultdict[int, int](int), defaultdict[int, int](int)
        for step in range(draw.integers(1, 5)):
            batch = random_batch(draw)
            if step == 1:  # the run stops here and goes on
                resumed = OutcomeCounts(64)
                resumed.load_state_dict(counts.state_dict())
                counts = resumed
            found = group_advantages(counts=counts, adv_estimator=estimator, bonus="none", **batch).advantages
            order = torch.from_numpy(draw.permutation(len(found)))
            permuted = {column: values[order] for column, values in batch.items()}
            elsewhere = group_advantages(counts=other, adv_estimator=estimator, bonus="none", **permuted).advantages
            torch.testing.assert_close(elsewhere, found[order], atol=1e-12, rtol=1e-12)
            rows = [column.numpy() for column in (batch["rewards"], batch["correct"], batch["outcome_keys"])]
            questions = batch["question_keys"].tolist()
            expected = [
                formula(Group(*group, visits[question], successes[question]), **given)
                for question, *group in zip(questions, *rows, strict=True)
            ]
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-9)
            for question, correct in zip(questions, rows[1], strict=True):
                visits[question] += len(correct)
                successes[question] += int(correct.sum())


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precisions_follow_float64(name: str, dtype: torch.dtype) -> None:
    """Relative to the largest advantage of a group; a question that is nearly always solved included."""
    for seed in range(20):
        draw = np.random.default_rng(seed)
        batch = random_batch(draw)
        batch["rewards"] = batch["correct"].double()  # exact in every dtype
        counts = OutcomeCounts()
        past = torch.full((3, 1000 if seed % 2 else 3), 9)
        counts.observe(torch.arange(3), past, torch.ones_like(past, dtype=torch.bool))
        exact, rounded = (
            group_advantages(
                **batch | {"rewards": batch["rewards"].to(kind)},
                counts=counts,
                adv_estimator=name,
                bonus="none",
                update=False,
            ).advantages
            for kind in (torch.float64, dtype)
        )
        assert rounded.dtype == dtype
        size = exact.abs().amax(dim=1, keepdim=True).clamp(min=1e-3)
        assert ((rounded.double() - exact) / size).abs().max() <= 16 * torch.finfo(dtype).eps


@pytest.mark.parametrize("name", [name for name in ORACLES if name != "beta_bernoulli"])
@pytest.mark.parametrize("n", [1, 3, 49])
@pytest.mark.parametrize("reward", [0.0, 0.1, 1.0])
def test_a_group_of_equal_samples_gets_exactly_zero(name: str, n: int, reward: float) -> None:
    rewards = torch.full((1, n), reward)
    found = group_advantages(rewards, torch.zeros(1).long(), torch.ones(1, n).long(), adv_estimator=name, bonus="none")
    assert (found.advantages == 0).all()


@pytest.mark.parametrize("name", ["f_grpo", "rs_grpo", "rare_correct", "bbg", "beta_bernoulli"])
def test_compiled_estimators_equal_eager_ones(name: str) -> None:
    from outcome_rl_kernels import Groups

    batch = random_batch(np.random.default_rng(1))
    visits = torch.full((len(batch["rewards"]), 1), 9)
    groups = Groups(batch["rewards"], batch["correct"], batch["outcome_keys"], visits=visits, successes=visits - 4)
    function = ADV_ESTIMATORS[name].function
    compiled = torch.compile(function, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(groups), function(groups))


@pytest.mark.parametrize(
    ("estimator", "match"),
    [
        ("beta_bernoulli", "adv_estimator 'beta_bernoulli' needs counts"),
        ("f_grpo(gamma=-1)", "gamma"),
        ("rs_grpo(beta=0)", "beta"),
        ("bbg(k=1)", "k of adv_estimator 'bbg'"),
    ],
)
def test_refused_estimators_count_nothing(estimator: str, match: str) -> None:
    counts = OutcomeCounts() if "needs counts" not in match else None
    columns = (torch.tensor([[1.0, 0.0]]), torch.tensor([7]), torch.tensor([[1, 2]]))
    with pytest.raises(ValueError, match=match):
        group_advantages(*columns, counts, adv_estimator=estimator, bonus="none")
    assert counts is None or len(counts) == 0
