"""Estimates equal the memory of a real model of the same shape."""

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from grpo_runs import as_rank
from transformers import LlamaConfig, LlamaForCausalLM

from bench.memory import MemoryEstimate, Part, estimate_memory, kept_for_backward, main
from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.schema import ModelConfig, TrainConfig
from outcome_rl.grpo.model.lora import add_adapters
from outcome_rl.grpo.model.policy import Policy


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[LlamaForCausalLM, Path]:
    shape = LlamaConfig(
        vocab_size=50,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=request.param,
    )
    folder = tmp_path_factory.mktemp("llama")
    shape.save_pretrained(folder)  # the configuration alone: there are no weights to load
    return LlamaForCausalLM(shape), folder


def config_of(folder: Path, *overrides: str) -> TrainConfig:
    sizes = ("data.max_prompt_length=5", "data.max_response_length=7", "actor.ppo_max_token_len_per_gpu=48")
    return load_config("toy", [f"model.path={folder}", *sizes, *overrides])


def parts(config: TrainConfig) -> dict[str, int]:
    return {part.name.split(",")[0].split(" of ")[0]: part.num_bytes for part in estimate_memory(config).parts}


def num_bytes(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def test_weights_gradients_and_optimizer(model: tuple[LlamaForCausalLM, Path]) -> None:
    real, folder = model
    estimated = parts(config_of(folder))
    optimizer = torch.optim.AdamW(real.parameters())
    ids = torch.ones(4, 12, dtype=torch.long)
    real(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    weights = list(real.parameters())
    moments = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    assert estimated["weights"] == num_bytes(weights)
    assert estimated["gradients"] == num_bytes([weight.grad for weight in weights if weight.grad is not None])
    assert estimated["AdamW"] == num_bytes(moments)
    assert estimated["reference policy"] == num_bytes(weights)
    assert estimate_memory(config_of(folder)).num_parameters == sum(weight.numel() for weight in weights)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activations(dtype: str, model: tuple[LlamaForCausalLM, Path]) -> None:
    real, folder = model
    policy = Policy(deepcopy(real).to(getattr(torch, dtype)), tokenizer=None)
    assert parts(config_of(folder, f"model.dtype={dtype}"))["activations"] == kept_for_backward(policy, 4, 12)
    own, lora = deepcopy(real).to(getattr(torch, dtype)), ModelConfig(path=str(folder), lora_rank=2)
    adapted = Policy(own, None, add_adapters(own, lora))  # float32 adapters read float32 copies of their inputs
    estimated = parts(config_of(folder, f"model.dtype={dtype}", "model.lora_rank=2"))
    assert estimated["activations"] == kept_for_backward(adapted, 4, 12)
    few = ("actor.ppo_max_token_len_per_gpu=768", "data.train_batch_size=1", "rollout.n=2")  # no more than there are
    assert parts(config_of(folder, f"model.dtype={dtype}", *few))["activations"] == kept_for_backward(policy, 2, 12)


def test_settings_that_save_memory_lower_the_estimate(model: tuple[LlamaForCausalLM, Path]) -> None:
    real, folder = model
    number = sum(weight.numel() for weight in real.parameters())
    whole = parts(config_of(folder))
    half = parts(config_of(folder, "model.dtype=bfloat16"))
    assert [half[name] for name in ("weights", "master weights", "AdamW", "gradients")] == [
        number * size for size in (2, 4, 8, 4)
    ]
    assert half["reference policy"] == number * 2
    lora = parts(config_of(folder, "model.lora_rank=2"))
    assert "reference policy" not in lora
    assert lora["weights"] - whole["weights"] == lora["gradients"] == lora["AdamW"] // 2 > 0
    assert lora["gradients"] < whole["gradients"] / 4
    checkpointed = parts(config_of(folder, "model.enable_gradient_checkpointing=true"))
    assert checkpointed["activations"] < whole["activations"] / 2
    budget = parts(config_of(folder, "actor.ppo_max_token_len_per_gpu=24"))
    assert budget["activations"] == kept_for_backward(Policy(real, tokenizer=None), 2, 12)


def test_activations_grow_with_tokens_and_exclude_weights(model: tuple[LlamaForCausalLM, Path]) -> None:
    real, _ = model
    policy = Policy(real, tokenizer=None)
    small, large = kept_for_backward(policy, 2, 16), kept_for_backward(policy, 4, 16)
    assert small < large <= 2 * small
    # At least, for one token in one layer: inputs of norms, projections, attention and MLP.
    assert small >= 2 * 16 * 3 * (4 * 48 + 3 * 80) * 4


def test_the_cache_of_rollouts(model: tuple[LlamaForCausalLM, Path]) -> None:
    real, folder = model
    estimated = parts(config_of(folder, "rollout.micro_batch_size=4"))["cache"]
    cache = real(input_ids=torch.ones(4, 12, dtype=torch.long), use_cache=True).past_key_values
    assert estimated == num_bytes([states for layer in cache.layers for states in (layer.keys, layer.values)])


def test_disabled_parts_cost_nothing(model: tuple[LlamaForCausalLM, Path]) -> None:
    _, folder = model
    names = parts(config_of(folder, "actor.kl_loss_coef=0", "rollout.engine=vllm")).keys()
    assert not {"reference policy", "cache"} & names


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sharded_parts_are_divided(dtype: str, model: tuple[LlamaForCausalLM, Path]) -> None:
    real, folder = model
    number, size = sum(weight.numel() for weight in real.parameters()), 4 if dtype == "float32" else 2
    settings = (f"model.dtype={dtype}", "actor.strategy=fsdp2")
    assert parts(config_of(folder, *settings)) == parts(config_of(folder, f"model.dtype={dtype}"))  # of one process
    with as_rank(0, 4):
        estimated = parts(config_of(folder, *settings))
    assert "weights" not in estimated
    for name, whole in (("master weights", 4), ("AdamW", 8), ("gradients", 4), ("reference policy", size)):
        assert estimated[name] == -(-number * whole // 4)
    assert estimated["gathered weights"] == number * size
    layer = sum(weight.numel() for weight in real.model.layers[0].parameters())
    assert estimated["gathered weights and gradients"] == 2 * size * (number - layer)  # two of three layers
    whole = parts(config_of(folder, *settings, "model.lora_rank=2"))
    with as_rank(0, 4):
        lora = parts(config_of(folder, *settings, "model.lora_rank=2"))
    for name in ("weights", "AdamW", "gradients"):
        assert lora[name] == -(-whole[name] // 4)
    assert whole["weights"] == number * size + whole["gradients"]  # the adapters are in float32
    assert "master weights" not in lora
    assert lora["gathered weights and gradients"] == size * (number - layer)  # frozen weights have no gradients


def test_phases_alternate() -> None:
    estimate = MemoryEstimate(
        1, [Part("a", 10, "always"), Part("b", 5, "update"), Part("c", 4, "update"), Part("d", 8, "rollout")]
    )
    assert estimate.peak == 19


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    main(["toy", "model.lora_rank=2"])
    assert "Memory of one process, of 505,344 parameters:" in capsys.readouterr().out
