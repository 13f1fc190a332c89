"""A vLLM engine on the CPU with the weights of a tiny random model."""

import os

import pytest
import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.toy import policy_dir

os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"  # GiB; otherwise a share of all memory
os.environ["VLLM_NO_USAGE_STATS"] = "1"
VLLM = ("rollout.engine=vllm", "rollout.enforce_eager=true", "model.device=cpu")


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    """Settings for a random model with biases, grouped heads of 32 channels (vLLM's smallest on the CPU) and an untied
    head; the toy policy of the other tests has a head that is tied to its embedding."""
    folder = tmp_path_factory.mktemp("qwen2")
    tokenizer = AutoTokenizer.from_pretrained(policy_dir())
    torch.manual_seed(0)
    shape = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        initializer_range=0.2,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    Qwen2ForCausalLM(shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load_config("toy", [*VLLM, f"model.path={folder}"])


@pytest.fixture(scope="session")
def policy(config: TrainConfig) -> Policy:
    return Policy.load(config.model)
