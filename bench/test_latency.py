"""Host latency of what a training step does besides the model, for pytest-benchmark.

python -m pytest bench
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from outcome_rl import OutcomeCounts, OutcomeMatcher, extract_answer, group_advantages
from outcome_rl_kernels.native import native_status

B, N = 256, 8  # the paper's step
Benchmark = Callable[..., Any]


def step_keys(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Questions of one step, and outcomes of which a few repeat within each group."""
    g = torch.Generator().manual_seed(seed)
    return torch.randint(1 << 40, (B,), generator=g), torch.randint(1, 6, (B, N), generator=g)


@pytest.fixture(params=["native", "reference"])
def counts(request: pytest.FixtureRequest) -> OutcomeCounts:
    """A table that has half a million entries already."""
    if request.param == "native" and not native_status()[0]:
        pytest.skip(native_status()[1])
    table = OutcomeCounts(impl=request.param)
    g = torch.Generator().manual_seed(0)
    table.observe(torch.randint(1 << 40, (500_000,), generator=g), torch.randint(1, 6, (500_000,), generator=g))
    return table


@pytest.mark.benchmark(group="group_advantages, 256 x 8 samples, counts of 500,000 entries")
def test_group_advantages(benchmark: Benchmark, counts: OutcomeCounts) -> None:
    rewards = (torch.rand(B, N, generator=torch.Generator().manual_seed(1)) < 0.4).float()
    steps = [step_keys(seed) for seed in range(64)]
    calls = iter(range(1_000_000))

    def call() -> None:
        group_advantages(rewards, *steps[next(calls) % 64], counts, bonus="ucb_con", coef=0.2)

    benchmark(call)


@pytest.mark.benchmark(group="outcomes of 256 x 8 responses with rational answers")
def test_classify(benchmark: Benchmark) -> None:
    responses = [f"so the answer is \\boxed{{{i % 7}/{1 + i % 5}}}." for i in range(B * N)]
    ids, golds = [f"q{i // N}" for i in range(B * N)], [f"{i // N % 11}" for i in range(B * N)]
    matcher = OutcomeMatcher()
    benchmark(matcher.classify, ids, responses, golds)


@pytest.mark.benchmark(group="extract_answer, a response of 8,000 characters")
def test_extract(benchmark: Benchmark) -> None:
    response = "Let us consider $x^{2}$ and {its} square. " * 190 + r"Therefore \boxed{\frac{3}{4}}."
    assert benchmark(extract_answer, response).text == r"\frac{3}{4}"
