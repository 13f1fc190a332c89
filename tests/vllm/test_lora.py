"""`rollout.merge_adapters=false`: the adapters alone travel to vLLM."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm_samples import TEXTS, N, largest_difference, texts

from outcome_rl.grpo.config.schema import SamplingConfig, TrainConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.vllm_engine import VllmEngine


@pytest.fixture(scope="module")
def with_adapters(config: TrainConfig) -> TrainConfig:
    rollout = replace(config.rollout, merge_adapters=False)
    return replace(config, model=replace(config.model, lora_rank=4), rollout=rollout)


@pytest.fixture(scope="module")
def adapted(with_adapters: TrainConfig) -> Policy:
    """A policy whose adapters change it."""
    policy = Policy.load(with_adapters.model)
    move_adapters(policy, 1)
    return policy


def move_adapters(policy: Policy, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if ".lora_" in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))


@pytest.fixture(scope="module")
def engine(adapted: Policy, with_adapters: TrainConfig) -> Iterator[VllmEngine]:
    with closing(VllmEngine(adapted, with_adapters)) as started:
        yield started


def test_vllm_samples_from_the_adapters_of_the_last_update(
    engine: VllmEngine, adapted: Policy, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[list[int]] = policy.tokenizer(list(TEXTS))["input_ids"]
    sampling = SamplingConfig(n=N)
    first = engine.generate(prompts, sampling, 16, seed=1)
    assert largest_difference(adapted, first, 1.0) < 1e-4
    assert largest_difference(policy, first, 1.0) > 0.1  # the frozen weights alone
    again = engine.generate(prompts, sampling, 16, seed=1)
    assert texts(again) == texts(first)

    sent: list[int] = []
    save = type(adapted.adapters).save_pretrained

    def measured(adapters: Any, folder: str, **settings: Any) -> None:
        save(adapters, folder, **settings)
        sent.append(sum(file.stat().st_size for file in Path(folder).glob("*.safetensors")))

    monkeypatch.setattr(type(adapted.adapters), "save_pretrained", measured)
    move_adapters(adapted, 2)
    engine.update_weights(adapted)
    moved = engine.generate(prompts, sampling, 16, seed=1)
    assert largest_difference(adapted, moved, 1.0) < 1e-4
    assert texts(moved) != texts(first)
    trained = sum(x.numel() for name, x in adapted.model.named_parameters() if ".lora_" in name)
    assert len(sent) == 1
    assert 4 * trained <= sent[0] < 4 * trained + 10_000  # the numbers and the file's header


def test_a_rank_that_vllm_lacks_is_refused(with_adapters: TrainConfig, adapted: Policy) -> None:
    config = replace(with_adapters, model=replace(with_adapters.model, lora_rank=513))
    with pytest.raises(ValueError, match=r"model.lora_rank must be at most 512"):
        VllmEngine(adapted, config)
