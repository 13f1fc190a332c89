"""Host latency of the parts of a training step besides the model, for pytest-benchmark.

python -m pytest bench
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from outcome_rl import (
    OutcomeCounts,
    OutcomeMatcher,
    extract_answer,
    group_advantages,
    linear_logprobs,
    linear_policy_loss,
    policy_loss,
)
from outcome_rl_kernels.backends import native_obstacle

B, N = 256, 8  # the paper's step
Benchmark = Callable[..., Any]


def step_keys(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return questions of one step, and outcomes with a few repeats in each group."""
    g = torch.Generator().manual_seed(seed)
    return torch.randint(1 << 40, (B,), generator=g), torch.randint(1, 6, (B, N), generator=g)


@pytest.fixture(params=["native", "reference"])
def counts(request: pytest.FixtureRequest) -> OutcomeCounts:
    """Return a table with half a million entries."""
    if request.param == "native" and (obstacle := native_obstacle()):
        pytest.skip(obstacle)
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


@pytest.mark.benchmark(group="group_advantages, 2 x 8 samples, no counts")
def test_small_group_advantages(benchmark: Benchmark) -> None:
    rewards = (torch.rand(2, N, generator=torch.Generator().manual_seed(1)) < 0.4).float()
    questions, outcomes = step_keys(0)
    benchmark(group_advantages, rewards, questions[:2], outcomes[:2], None, bonus="batch", coef=0.2)


class Head:
    """Inputs so small that calling the loss costs more than computing it."""

    def __init__(self) -> None:
        g = torch.Generator().manual_seed(0)
        S, T, H, V = 2, 4, 16, 64
        self.hidden = torch.randn(S, T, H, generator=g, requires_grad=True)
        self.weight = torch.randn(V, H, generator=g, requires_grad=True)
        self.logits = torch.randn(S, T, V, generator=g, requires_grad=True)
        self.labels = torch.randint(V, (S, T), generator=g)
        self.per_token = self.labels, torch.tensor([1.0, -1.0]), torch.ones(S, T, dtype=torch.bool)


@pytest.mark.benchmark(group="one call on 2 x 4 tokens, 64 logits, forward and backward")
class TestCallOverhead:
    def test_linear_policy_loss(self, benchmark: Benchmark) -> None:
        head = Head()
        benchmark(lambda: linear_policy_loss(head.hidden, head.weight, *head.per_token).loss.backward())

    def test_policy_loss(self, benchmark: Benchmark) -> None:
        head = Head()
        benchmark(lambda: policy_loss(head.logits, *head.per_token).loss.backward())

    def test_plain_pytorch(self, benchmark: Benchmark) -> None:
        """Time the same tensors in plain PyTorch."""
        head = Head()
        labels, advantages, _ = head.per_token

        def call() -> None:
            logps = (head.hidden @ head.weight.t()).log_softmax(dim=-1).gather(-1, labels[..., None])[..., 0]
            (-(logps - logps.detach()).exp() * advantages[:, None]).mean().backward()

        benchmark(call)


@pytest.mark.benchmark(group="log-probabilities of 2 x 4 tokens, 64 logits, no gradient")
def test_linear_logprobs(benchmark: Benchmark) -> None:
    head = Head()
    benchmark(torch.no_grad()(linear_logprobs), head.hidden, head.weight, head.labels)
