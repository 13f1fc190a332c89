"""vLLM samples from the policy that is trained, and returns the right log-probabilities."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
import torch
from vllm_samples import TEXTS, N, largest_difference, texts

from outcome_rl.grpo.config.schema import SamplingConfig, TrainConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.vllm_engine import VllmEngine
from outcome_rl.grpo.types import Rollout


@pytest.fixture(scope="module")
def engine(policy: Policy, config: TrainConfig) -> Iterator[VllmEngine]:
    with closing(VllmEngine(policy, config.rollout, config.model, config.data.max_length)) as started:
        yield started


@pytest.fixture(scope="module")
def prompts(policy: Policy) -> list[list[int]]:
    ids: list[list[int]] = policy.tokenizer(list(TEXTS))["input_ids"]
    return ids


@pytest.fixture(scope="module")
def rollouts(engine: VllmEngine, prompts: list[list[int]]) -> list[Rollout]:
    return engine.generate(prompts, SamplingConfig(n=N), 16, seed=1)


@pytest.fixture
def moved(engine: VllmEngine, policy: Policy) -> Iterator[Policy]:
    """The policy with other weights that the engine does not have yet; both are restored afterwards."""
    before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    yield policy
    policy.model.load_state_dict(before)
    engine.update_weights(policy)
    engine.generate([[1]], SamplingConfig(n=1), 1, seed=0)  # which sends them, before another test moves them


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logps_are_the_policys(
    temperature: float, engine: VllmEngine, policy: Policy, prompts: list[list[int]]
) -> None:
    rollouts = engine.generate(prompts, SamplingConfig(n=N, temperature=temperature), 16, seed=2)
    assert largest_difference(policy, rollouts, temperature) < 1e-4


def test_new_weights_are_sampled_from_after_an_update(
    engine: VllmEngine, moved: Policy, prompts: list[list[int]], rollouts: list[Rollout]
) -> None:
    sampling = SamplingConfig(n=N)
    old = engine.generate(prompts, sampling, 16, seed=1)
    assert texts(old) == texts(rollouts)
    assert largest_difference(moved, old, 1.0) > 0.1
    engine.update_weights(moved)
    new = engine.generate(prompts, sampling, 16, seed=1)
    assert largest_difference(moved, new, 1.0) < 1e-4
    assert texts(new) != texts(old)


def test_the_seed_decides_and_nothing_else(
    engine: VllmEngine, prompts: list[list[int]], rollouts: list[Rollout]
) -> None:
    again = engine.generate(prompts, SamplingConfig(n=N), 16, seed=1)
    other = engine.generate(prompts, SamplingConfig(n=N), 16, seed=2)
    assert again == rollouts  # log-probabilities too
    assert all(mine != yours for mine, yours in zip(groups(other), groups(rollouts), strict=True))
    assert all(len(set(group)) > N / 2 for group in groups(rollouts))  # samples of one prompt are independent


def test_a_question_keeps_its_samples_in_another_batch(
    engine: VllmEngine, prompts: list[list[int]], rollouts: list[Rollout]
) -> None:
    alone = engine.generate(prompts[2:], SamplingConfig(n=N), 16, seed=1)
    assert texts(alone) == groups(rollouts)[2]


def groups(rollouts: list[Rollout]) -> list[list[str]]:
    return [texts(rollouts[start : start + N]) for start in range(0, len(rollouts), N)]


def test_responses_end_with_the_end_token(rollouts: list[Rollout], policy: Policy, prompts: list[list[int]]) -> None:
    end = policy.tokenizer.eos_token_id
    ended = 0
    for row, rollout in enumerate(rollouts):
        ended += rollout.token_ids[-1] == end
        assert end not in rollout.token_ids[:-1]
        assert rollout.token_ids[-1] == end or len(rollout.token_ids) == 16
        assert len(rollout.logps) == len(rollout.token_ids)
        assert rollout.prompt_ids == prompts[row // N]
        assert rollout.text == policy.tokenizer.decode(rollout.token_ids, skip_special_tokens=True)
    assert 0 < ended < 3 * N


def test_responses_are_cut_at_the_limit(engine: VllmEngine, prompts: list[list[int]]) -> None:
    cut = engine.generate(prompts, SamplingConfig(n=4), 3, seed=1)
    assert [len(rollout.token_ids) for rollout in cut] == [3] * 12


@pytest.mark.parametrize("setting", [{"top_k": 1}, {"top_p": 1e-6}])
def test_sampling_settings_are_obeyed(setting: dict[str, float], engine: VllmEngine, prompts: list[list[int]]) -> None:
    greedy = engine.generate(prompts, SamplingConfig(n=N, **setting), 8, seed=1)
    assert [len(set(group)) for group in groups(greedy)] == [1, 1, 1]


def test_samples_follow_the_policys_probabilities(engine: VllmEngine, policy: Policy, prompts: list[list[int]]) -> None:
    n = 2000
    rollouts = engine.generate(prompts[1:2], SamplingConfig(n=n, temperature=0.7), 1, seed=0)
    observed = (
        torch.bincount(
            torch.tensor([rollout.token_ids[0] for rollout in rollouts]), minlength=policy.head.weight.shape[0]
        )
        / n
    )
    with torch.no_grad():
        expected = torch.softmax(policy.model(torch.tensor(prompts[1:2])).logits[0, -1] / 0.7, dim=-1)
    # Half the sum of absolute differences; the expectation of it, from the binomial of each token:
    typical = 0.5 * (2 / torch.pi * expected * (1 - expected) / n).sqrt().sum()
    assert 0.5 * (observed - expected).abs().sum() < 1.5 * typical


def test_sleep_between_rollouts_changes_nothing(
    engine: VllmEngine, prompts: Sequence[list[int]], rollouts: list[Rollout], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPU build goes through the motions of sleeping, and keeps its memory."""
    monkeypatch.setattr(engine, "sleeps", True)
    for _ in range(2):
        assert engine.generate(prompts, SamplingConfig(n=N), 16, seed=1) == rollouts
    monkeypatch.setattr(engine, "sleeps", False)
    for _ in range(2):
        assert engine.generate(prompts, SamplingConfig(n=N), 16, seed=1) == rollouts
