"""LoRA: vLLM samples from the adapters of the last update, whatever the dtype of the weights that they are on."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
import torch
from vllm_samples import TEXTS, N, differences, texts

from outcome_rl.grpo.config.schema import SamplingConfig, TrainConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.vllm_engine import VllmEngine
from outcome_rl.sampler.stale import rounding_limit


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def adapted(request: pytest.FixtureRequest, config: TrainConfig) -> TrainConfig:
    return replace(config, model=replace(config.model, lora_rank=4, dtype=request.param))


@pytest.fixture(scope="module")
def adapted_policy(adapted: TrainConfig) -> Policy:
    return Policy.load(adapted.model)


@pytest.fixture(scope="module")
def engine(adapted_policy: Policy, adapted: TrainConfig) -> Iterator[VllmEngine]:
    with closing(VllmEngine(adapted_policy, adapted.rollout, adapted.model, adapted.data.max_length)) as started:
        yield started


def move_adapters(policy: Policy, seed: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if ".lora_" in name:
                parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))


def test_vllm_samples_from_the_adapters_of_the_last_update(engine: VllmEngine, adapted_policy: Policy) -> None:
    prompts: list[list[int]] = adapted_policy.tokenizer(list(TEXTS))["input_ids"]
    limit = rounding_limit(adapted_policy.dtype)
    seen = []
    for seed in (1, 2):
        move_adapters(adapted_policy, seed, 0.2)
        engine.update_weights(adapted_policy)
        rollouts = engine.generate(prompts, SamplingConfig(n=N), 16, seed=1)
        assert differences(adapted_policy, rollouts, 1.0).mean() < limit
        with adapted_policy.adapters.disable_adapter():
            assert differences(adapted_policy, rollouts, 1.0).mean() > 2 * limit
        seen.append(texts(rollouts))
    assert seen[0] != seen[1]
    assert texts(engine.generate(prompts, SamplingConfig(n=N), 16, seed=1)) == seen[1]
