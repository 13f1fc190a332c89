"""Architectures of transformers, tiny and random, compute and sample as by their own eager attention."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import LATENT, ROUTED, SIZES, save_random
from transformers import AutoConfig, AutoModelForCausalLM

from outcome_rl.grpo.config.schema import ModelConfig
from outcome_rl.grpo.model.packing import PackingPlan, pack
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.decode_loop import TokenStream, check_cache
from outcome_rl.grpo.types import Rollout

pytestmark = pytest.mark.nightly

PACKED = (
    *("apertus", "arcee", "cohere", "cohere2", "deepseek_v3", "dots1", "ernie4_5", "exaone4", "gemma", "gemma2"),
    *("gemma3_text", "gemma3n_text", "gemma4_text", "glm", "glm4", "glm4_moe", "gpt_neox", "granite", "granitemoe"),
    *(
        "helium",
        "hunyuan_v1_dense",
        "llama",
        "minimax_m2",
        "ministral3",
        "mistral",
        "mixtral",
        "olmo",
        "olmo2",
        "olmo3",
    ),
    *("olmoe", "opt", "phi", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "seed_oss", "smollm3", "starcoder2"),
)
PADDED = (
    *("doge", "falcon_h1", "gpt_oss", "jamba", "lfm2", "nemotron", "nemotron_h", "qwen3_5_text", "qwen3_next"),
    "stablelm",
)

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
SETTINGS: dict[str, dict[str, Any]] = {
    "cohere2": WINDOW,
    "deepseek_v3": {**LATENT, **ROUTED, "num_key_value_heads": 4},
    "dots1": ROUTED,
    "gemma2": {**WINDOW, "attn_logit_softcapping": 2.0},
    "gemma3_text": WINDOW,
    "gemma3n_text": {
        **{**FIVE_LAYERS, **WINDOW, "laurel_rank": 4},
        **{"activation_sparsity_pattern": [0.0] * 5, "intermediate_size": [16] * 5},
    },
    "gemma4_text": {**FIVE_LAYERS, "global_head_dim": 8},
    "glm4_moe": ROUTED,
    "gpt_oss": {**LOCAL, **WINDOW},
    "granitemoe": LOCAL,
    "jamba": {"num_hidden_layers": 8, "num_experts": 2, "attn_layer_period": 4, "attn_layer_offset": 1},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "minimax_m2": {**LOCAL, "rotary_dim": 4},
    "mistral": WINDOW,
    "mixtral": LOCAL,
    "olmo3": WINDOW,
    "olmoe": EXPERTS,
    "qwen2_moe": EXPERTS,
    "qwen3_5_text": LINEAR,
    "qwen3_moe": EXPERTS,
    "qwen3_next": {**LINEAR, **EXPERTS},
}


@pytest.fixture
def folder(name: str, tmp_path: Path, shared_policy: Policy) -> Path:
    config = AutoConfig.for_model(name, **{**COMMON, **SETTINGS.get(name, {})})
    save_random(config, shared_policy.tokenizer, tmp_path)
    return tmp_path


def policies(name: str, folder: Path) -> Iterator[Policy]:
    for packs in (True, False) if name in PACKED else (False,):
        yield Policy.load(ModelConfig(path=str(folder), device="cpu", dtype="float32", use_remove_padding=packs))


@pytest.mark.parametrize("name", [*PACKED, *PADDED])
@torch.no_grad()
def test_passes_and_samples_are_those_of_eager_attention(name: str, folder: Path) -> None:
    eager = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()

    def truth(*sequences: list[int]) -> torch.Tensor:
        return torch.cat([eager(torch.tensor([tokens])).logits[0] for tokens in sequences])

    def assert_same(ours: torch.Tensor, true: torch.Tensor) -> None:
        assert (ours - true).abs().max() <= 1e-4 * true.abs().max()

    prompts = [[5, 6, 7], [5, 6, 7], [9]]
    responses = [[10, 11, 12], [13], [14, 15, 16, 17, 18, 19, 20]]
    rollouts = [Rollout(*pair, "") for pair in zip(prompts, responses, strict=True)]
    wanted = torch.cat([truth(one + other)[len(one) - 1 : -1] for one, other in zip(prompts, responses, strict=True)])
    for policy in policies(name, folder):
        row = pack(PackingPlan.of(rollouts, share_prefixes=policy.packs), [0, 1, 2], policy.attention_layout)
        assert_same(policy.head.logits(policy.packed_hidden(row)), wanted)
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


@pytest.mark.parametrize("name", PADDED)
def test_architectures_that_cannot_be_packed_are_refused(name: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=r"set model\.use_remove_padding=false"):
        Policy.load(ModelConfig(path=str(folder), device="cpu", dtype="float32"))
