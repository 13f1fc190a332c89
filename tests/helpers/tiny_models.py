"""Models that are made in milliseconds."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedTokenizerFast

SIZES = {
    "vocab_size": 80,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "eos_token_id": 2,
    "bos_token_id": 1,
    "pad_token_id": 0,
}

# DeepSeek-V3: latent attention, whose values are narrower than its keys, and routed experts.
LATENT = {
    **{"num_key_value_heads": SIZES["num_attention_heads"], "q_lora_rank": 8, "kv_lora_rank": 8, "v_head_dim": 4},
    **{"qk_rope_head_dim": 4, "qk_nope_head_dim": 4},
}
ROUTED = {
    **{"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 8},
    **{"n_group": 1, "topk_group": 1},
}


def with_visible_head(config: PreTrainedConfig) -> Any:
    """Return a random model whose logits are of about 1, where caps, scales and biases of its head matter."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        head = model.get_output_embeddings()
        head.weight.mul_(0.25 / head.weight.std())
        if head.bias is not None:
            head.bias.normal_()
    return model


def byte_tokenizer(chat_template: str, **special_tokens: Any) -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token for each byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    of_bytes = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    of_bytes.pre_tokenizer, of_bytes.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=of_bytes, **special_tokens)
    tokenizer.chat_template = chat_template
    return tokenizer


def save_random(config: PreTrainedConfig, tokenizer: Any, folder: Path) -> None:
    """Save a random model with weights so large that its attention and its layers matter."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
