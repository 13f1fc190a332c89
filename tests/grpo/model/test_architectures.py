"""Architectures of transformers, tiny and random, are trained, sampled, saved and continued as by whole sequences."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import invoke
from grpo_runs import (
    RANKS,
    MakeConfig,
    as_rank,
    columns,
    needs_gloo,
    scored,
    updater_of,
    updates_together_and_alone,
)
from peft import PeftModel
from ranks import free_port, start
from safetensors.torch import load_file
from tiny_models import LATENT, ROUTED, SIZES, save_random
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from outcome_rl import cli
from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.schema import ModelConfig, TrainConfig
from outcome_rl.grpo.model.packing import PackingPlan, pack
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.model.source import load_shape
from outcome_rl.grpo.rollout.decode_loop import TokenStream, check_cache
from outcome_rl.grpo.types import Rollout
from outcome_rl.toy import policy_dir

pytestmark = pytest.mark.nightly

PACKED = (
    *("apertus", "arcee", "biogpt", "cohere", "cohere2", "deepseek_v3", "dots1", "ernie4_5", "exaone4", "gemma"),
    *("gemma2", "gemma3_text", "gemma3n_text", "gemma4_text", "glm", "glm4", "glm4_moe", "gpt2", "gpt_neox"),
    *("granite", "granitemoe", "helium", "hunyuan_v1_dense", "jetmoe", "llama", "minimax_m2", "ministral3"),
    *("mistral", "mixtral", "olmo", "olmo2", "olmo3", "olmoe", "opt", "phi", "phi3", "phimoe", "qwen2", "qwen2_moe"),
    *("qwen3", "qwen3_moe", "seed_oss", "smollm3", "starcoder2"),
)
PADDED = (
    *("bamba", "bloom", "doge", "falcon", "falcon_h1", "gpt_oss", "gptj", "granitemoehybrid", "jamba", "lfm2"),
    *("lfm2_moe", "nemotron", "nemotron_h", "olmo_hybrid", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"),
    *("stablelm", "xglm"),
)
# Trained on samples of another engine: from the cache, prompts of different lengths are not as whole sequences.
ELSEWHERE = ("falcon_mamba", "mamba", "mamba2", "minimax", "recurrent_gemma", "rwkv", "xlstm")

COMMON = {**SIZES, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 64}
WINDOW = {"sliding_window": 4}
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
EXPERTS = {
    **{"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8},
    "shared_expert_intermediate_size": 8,
}
LINEAR = {
    **{"num_hidden_layers": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4},
    **{"linear_key_head_dim": 4, "linear_value_head_dim": 4},
}
FIVE_LAYERS = {
    **{"num_hidden_layers": 5, "layer_types": ["sliding_attention"] * 4 + ["full_attention"]},
    **{"num_kv_shared_layers": 0, "vocab_size_per_layer_input": 80, "hidden_size_per_layer_input": 8},
}
STATE = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8}
GPT = {"n_embd": 16, "n_layer": 2, "n_head": 2}
SETTINGS: dict[str, dict[str, Any]] = {
    "bamba": {**STATE, "attn_layer_indices": [1], "mamba_expand": 2},
    "bloom": {"n_layer": 2, "n_head": 2},
    "cohere2": WINDOW,
    "deepseek_v3": {**LATENT, **ROUTED, "num_key_value_heads": 4},
    "dots1": ROUTED,
    "falcon_h1": {**STATE, "mamba_d_ssm": 32},
    "falcon_mamba": {"state_size": 8},
    "gemma2": {**WINDOW, "attn_logit_softcapping": 2.0},
    "gemma3_text": WINDOW,
    "gemma3n_text": {
        **{**FIVE_LAYERS, **WINDOW, "laurel_rank": 4},
        **{"activation_sparsity_pattern": [0.0] * 5, "intermediate_size": [16] * 5},
    },
    "gemma4_text": {**FIVE_LAYERS, "global_head_dim": 8},
    "glm4_moe": ROUTED,
    "gpt2": GPT,
    "gptj": {**GPT, "rotary_dim": 4},
    "gpt_oss": {**LOCAL, **WINDOW},
    "granitemoe": LOCAL,
    "granitemoehybrid": {
        **{**STATE, **LOCAL, "mamba_expand": 2},
        **{"layer_types": ["mamba", "attention"], "shared_intermediate_size": 16},
    },
    "jamba": {"num_hidden_layers": 8, "num_experts": 2, "attn_layer_period": 4, "attn_layer_offset": 1},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "jetmoe": {**LOCAL, "kv_channels": 4},
    "lfm2_moe": {**EXPERTS, "layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "mamba": {"state_size": 8},
    "mamba2": {"state_size": 8, "num_heads": 4, "head_dim": 8, "n_groups": 1},
    "minimax": {**LOCAL, "layer_types": ["linear_attention", "full_attention"]},
    "minimax_m2": {**LOCAL, "rotary_dim": 4},
    "mistral": WINDOW,
    "mixtral": LOCAL,
    "nemotron_h": {
        **{"num_hidden_layers": 4, "hybrid_override_pattern": "M*-M", "n_groups": 1},
        **{"mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 8},
    },
    "olmo3": WINDOW,
    "olmo_hybrid": {**LINEAR, "linear_num_value_heads": 2, "layer_types": ["linear_attention", "full_attention"] * 2},
    "olmoe": EXPERTS,
    "phimoe": LOCAL,
    "qwen2_moe": EXPERTS,
    "qwen3_5_moe_text": {**LINEAR, **EXPERTS},
    # With heads of 4, float32 errs by 2e-4 in transformers itself: weights moved by 6e-8 change a gradient by 7e-5.
    "qwen3_5_text": {**LINEAR, "linear_key_head_dim": 8, "linear_value_head_dim": 8},
    "qwen3_moe": EXPERTS,
    "qwen3_next": {**LINEAR, **EXPERTS},
    "recurrent_gemma": {"num_hidden_layers": 3, "lru_width": 16, "attention_window_size": 32},
    "rwkv": {"attention_hidden_size": 16},
    "xglm": {"d_model": 16, "num_layers": 2, "attention_heads": 2, "ffn_dim": 16},
    "xlstm": {"num_heads": 2, "num_blocks": 2, "embedding_dim": 16},
}


NAMES = (*PACKED, *PADDED, *ELSEWHERE)
PROMPTS = [[5, 6, 7], [5, 6, 7], [9]]
RESPONSES = [[10, 11, 12], [13], [14, 15, 16, 17, 18, 19, 20]]
ROLLOUTS = [Rollout(*pair, "") for pair in zip(PROMPTS, RESPONSES, strict=True)]
ADVANTAGES = [1.0, -0.5, 0.7]
BATCH = scored(ROLLOUTS, ADVANTAGES, [0.0] * 3, [False] * 3, [(0, 0)] * 3)
PLAIN = ("actor.kl_loss_coef=0", "actor.grad_clip=1e9", "actor.optim.lr=1e-3", "actor.optim.lr_warmup_steps=0")
NO_RECOMPUTATION = ("jetmoe",)  # transformers refuses it
NO_ADAPTERS = ("falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h", "phimoe")  # refused on all linear layers
EAGER = {"attn_implementation": "eager"}
CPU = ModelConfig(device="cpu", dtype="float32")


def write(name: str, folder: Path) -> Path:
    """Write a tiny random model of an architecture."""
    common = {key: value for key, value in COMMON.items() if (name, key) != ("falcon", "head_dim")}
    config = AutoConfig.for_model(name, **{**common, **SETTINGS.get(name, {})})
    save_random(config, AutoTokenizer.from_pretrained(policy_dir()), folder)
    return folder


def log_likelihood(model: Any, weights: Sequence[float]) -> torch.Tensor:
    """The weighted sum of the log-probabilities of the responses, in a loop over whole sequences."""
    total = torch.zeros((), dtype=torch.float64)
    for prompt, response, weight in zip(PROMPTS, RESPONSES, weights, strict=True):
        logits = model(torch.tensor([prompt + response]), use_cache=False).logits[0, len(prompt) - 1 : -1]
        total = total + weight * logits.log_softmax(-1).gather(1, torch.tensor(response)[:, None]).sum()
    return total


def assert_same(ours: torch.Tensor, true: torch.Tensor) -> None:
    assert (ours - true).abs().max() <= 1e-4 * true.abs().max() + 1e-9


def assert_same_gradients(ours: Sequence[torch.Tensor], true: Sequence[torch.Tensor]) -> None:
    """Up to the rounding of float32, in which some layers always compute; none is a gradient of zero."""
    pairs = [
        [(torch.zeros_like(weight) if weight.grad is None else weight.grad).double() for weight in pair]
        for pair in zip(ours, true, strict=True)
    ]
    size = max(float(wanted.abs().max()) for _, wanted in pairs)
    assert size > 0
    for found, wanted in pairs:
        assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max() + 1e-6 * size
    flat, flat_true = (torch.cat([x.flatten() for x in each]) for each in zip(*pairs, strict=True))
    assert (flat - flat_true).norm() <= 1e-5 * flat_true.norm()


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_passes_and_samples_are_those_of_eager_attention(name: str, tmp_path: Path) -> None:
    policy = Policy.load(replace(CPU, path=str(write(name, tmp_path))))
    assert policy.packs == (name in PACKED)
    eager = AutoModelForCausalLM.from_pretrained(tmp_path, **EAGER).eval()

    def truth(*sequences: list[int]) -> torch.Tensor:
        return torch.cat([eager(torch.tensor([tokens]), use_cache=False).logits[0] for tokens in sequences])

    wanted = torch.cat([truth(one + other)[len(one) - 1 : -1] for one, other in zip(PROMPTS, RESPONSES, strict=True)])
    row = pack(PackingPlan.of(ROLLOUTS, share_prefixes=policy.packs), [0, 1, 2], policy.attention_layout)
    assert_same(policy.head.logits(policy.packed_hidden(row)), wanted)
    if name in ELSEWHERE:
        with pytest.raises(ValueError, match=r"does not continue prompts [^\n]* rollout\.engine=vllm"):
            check_cache(policy)
        return
    check_cache(policy)
    sequences = [[5, 6, 7, 8, 9, 10], [11, 12, 13]]
    stream = TokenStream(policy, sequences, 10)
    logits_GV = stream.read_prompts()
    for step in range(9):  # beyond the windows
        wanted_SV = torch.stack([truth(tokens)[-1] for tokens in sequences])
        assert_same(logits_GV[stream.branches_S], wanted_SV)
        new = [20 + step, 40 + 2 * step]
        sequences = [[*tokens, token] for tokens, token in zip(sequences, new, strict=True)]
        logits_GV = stream.feed(torch.tensor(new))


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_that_of_whole_sequences_and_ends_with_the_sources_tensors(
    name: str, rank: int, tmp_path: Path, small_config: MakeConfig
) -> None:
    """Training with recomputation, in full or by LoRA; then saved, loaded, continued and exported."""
    source = write(name, tmp_path / "source")
    recomputes = name not in NO_RECOMPUTATION
    settings = replace(CPU, path=str(source), lora_rank=rank, enable_gradient_checkpointing=recomputes)
    if rank and name in NO_ADAPTERS:
        with pytest.raises(ValueError, match=r"\A[^\n]*\Z"):
            opened(settings)
        return
    config = small_config(tmp_path, *PLAIN)
    policy, again = opened(settings), opened(settings)
    updater, continued = (updater_of(one, config, total_steps=4) for one in (policy, again))
    exact = copy.deepcopy(policy.model).to(
        torch.float32 if name == "xglm" else torch.float64
    )  # its mask would overflow
    exact.set_experts_implementation("eager")
    tokens = sum(map(len, RESPONSES))
    log_likelihood(exact, [-advantage / tokens for advantage in ADVANTAGES]).backward()
    updater.step(columns(BATCH))
    assert_same_gradients(updater.weights.parameters, trained(exact))
    policy.save(tmp_path / "saved")
    again.load_weights(tmp_path / "saved")
    continued.load_state_dict(copy.deepcopy(updater.state_dict()))
    for one in (updater, continued):
        one.step(columns(BATCH))
    for ours, theirs in zip(updater.weights.parameters, continued.weights.parameters, strict=True):
        assert torch.equal(ours, theirs)

    policy.save(tmp_path / "run")
    assert (
        invoke(cli.main, "export", str(tmp_path / "run"), str(tmp_path / "exported"), "--dtype", "float32").exit_code
        == 0
    )
    with torch.no_grad():
        wanted = log_likelihood(policy.model, [1.0] * 3)
        for folder in (tmp_path / "run", tmp_path / "exported"):
            written, published = (load_file(place / "model.safetensors") for place in (folder, source))
            assert {key: (x.shape, x.dtype) for key, x in written.items()} == {
                key: (x.shape, x.dtype) for key, x in published.items()
            }
            loaded, found = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **EAGER)
            assert not any(found[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
            assert_same(log_likelihood(loaded.eval(), [1.0] * 3), wanted)
        if rank:
            base = AutoModelForCausalLM.from_pretrained(source, **EAGER).eval()
            adapted = PeftModel.from_pretrained(base, tmp_path / "run" / "adapter")
            assert_same(log_likelihood(adapted, [1.0] * 3), wanted)


def opened(settings: ModelConfig) -> Policy:
    load_shape(settings)
    return Policy.load(settings)


def trained(model: Any) -> list[torch.Tensor]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


@needs_gloo
def test_two_processes_take_the_step_of_one(tmp_path: Path, small_config: MakeConfig) -> None:
    for name in NAMES:
        write(name, tmp_path / name)
    start(_on_rank, (free_port(), str(tmp_path), small_config(tmp_path, *PLAIN)), RANKS)


def _on_rank(rank: int, port: int, folder: str, config: TrainConfig) -> None:
    torch.set_num_threads(1)
    with as_rank(rank, RANKS, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)), distributed.process_group("cpu"):
        for name in NAMES:
            policies = [Policy.load(replace(CPU, path=f"{folder}/{name}")) for _ in range(2)]
            together, alone, _ = updates_together_and_alone(policies, BATCH, config, rank, RANKS)
            assert_same_gradients(together, alone)
