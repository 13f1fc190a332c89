"""Parts of the vLLM engine that need no vLLM; `make test-vllm` runs the rest in an environment that has it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from grpo_runs import MakeConfig
from safetensors.torch import load_file
from tiny_models import SIZES, save_random
from transformers import AutoConfig, AutoTokenizer

from outcome_rl.grpo.config.schema import ModelConfig, RolloutConfig, SamplingConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.sampling import warper
from outcome_rl.grpo.rollout.vllm_engine import (
    VllmEngine,
    kept_limit_of,
    logps_and_kept,
    sends_adapters,
    weights_of,
)
from outcome_rl.toy import policy_dir


@pytest.mark.parametrize(
    ("dtype", "rank", "options"),
    [
        ("bfloat16", 4, {"enable_lora": True, "max_lora_rank": 8}),
        ("float16", 8, {"enable_lora": True, "max_lora_rank": 8}),
        ("float32", 4, {"load_format": "dummy"}),  # merging loses nothing there
        ("bfloat16", 0, {"load_format": "dummy"}),
    ],
)
def test_adapters_are_not_rounded_away(dtype: str, rank: int, options: dict[str, Any]) -> None:
    model = ModelConfig(path="toy", dtype=dtype, lora_rank=rank)
    assert sends_adapters(model) == ("enable_lora" in options)
    assert weights_of(model) == options


def test_adapters_on_experts_are_refused_before_vllm_starts(tmp_path: Path, small_config: MakeConfig) -> None:
    shape = AutoConfig.for_model(
        "qwen3_moe", **SIZES, num_key_value_heads=2, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16
    )
    save_random(shape, AutoTokenizer.from_pretrained(policy_dir()), tmp_path / "policy")
    options = [f"model.path={tmp_path / 'policy'}", "model.lora_rank=2", "model.device=cpu"]
    config = small_config(tmp_path, *options, "model.dtype=bfloat16")
    with pytest.raises(ValueError, match=r"experts of Qwen3Moe.* model\.target_modules"):
        VllmEngine(Policy.load(config.model), config.rollout, config.model, config.data.max_length)


@dataclass
class FlatLogprobs:
    """The fields of vLLM's class that are read, with the layout of its samplers: the sampled token, then the best n."""

    start_indices: list[int] = field(default_factory=list)
    end_indices: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def append(self, logps_V: torch.Tensor, token: int, n: int) -> None:
        self.start_indices.append(len(self.token_ids))
        best = logps_V.topk(n)
        self.token_ids += [token, *best.indices.tolist()]
        self.logprobs += [logps_V[token].item(), *best.values.tolist()]
        self.end_indices.append(len(self.token_ids))


@pytest.mark.parametrize("settings", [{"top_k": 5}, {"top_k": 30, "top_p": 0.9}, {"top_k": 500, "top_p": 0.9}], ids=str)
def test_kept_tokens_of_vllms_log_probabilities(settings: dict[str, Any]) -> None:
    """Those whose logits the filters left."""
    policy, sampling = Policy.load(ModelConfig(path="toy", device="cpu")), RolloutConfig(temperature=1.5, **settings)
    limit, V = kept_limit_of(policy, sampling), policy.head.weight.shape[0]
    generator = torch.Generator().manual_seed(0)
    logits_TV = warper(sampling)(3 * torch.randn(40, V, generator=generator))
    tokens = torch.multinomial(logits_TV.softmax(dim=-1), 1, generator=generator)[:, 0].tolist()
    flat = FlatLogprobs()
    for logps_V, token in zip(logits_TV.log_softmax(dim=-1), tokens, strict=True):
        flat.append(logps_V, token, limit)
    logps, kept = logps_and_kept(flat, sampling)
    assert kept == [row.isfinite().nonzero()[:, 0].tolist() for row in logits_TV]
    assert logps == logits_TV.log_softmax(dim=-1)[torch.arange(40), tokens].tolist()
    assert logps_and_kept(flat, SamplingConfig()) == (logps, None)


def test_kept_tokens_that_vllm_did_not_return_are_an_error() -> None:
    """It keeps all tokens that tie with the last of the k: more than it was asked for, if all tie."""
    policy, sampling = Policy.load(ModelConfig(path="toy", device="cpu")), RolloutConfig(top_k=2)
    V, limit = policy.head.weight.shape[0], kept_limit_of(policy, sampling)
    tied, all_tied = FlatLogprobs(), FlatLogprobs()
    tied.append(torch.full((V,), -torch.inf).index_fill(0, torch.arange(limit), 0.0).log_softmax(0), 3, limit)
    assert logps_and_kept(tied, sampling)[1] == [[*range(limit)]]
    all_tied.append(torch.zeros(V).log_softmax(0), 3, limit)
    with pytest.raises(ValueError, match=r"top_k=2: vLLM kept more than 1\d tokens"):
        logps_and_kept(all_tied, sampling)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_are_handed_over_as_published(dtype: str) -> None:
    policy = Policy.load(ModelConfig(path="toy", device="cpu", dtype=dtype))
    published, handed_over = load_file(policy_dir() / "model.safetensors"), policy.published_weights()
    assert handed_over.keys() == published.keys()
    held = {parameter.data_ptr() for parameter in policy.model.parameters()}
    for name, tensor in published.items():
        assert torch.equal(handed_over[name], tensor.to(policy.model.dtype))
        assert handed_over[name].data_ptr() in held  # no copy
