"""A tiny model for the experiment on SmolLM2."""

from pathlib import Path

import pytest
import torch
from tiny_models import SIZES, byte_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A random model whose tokens are bytes, with a chat template."""
    template = "{% for message in messages %}[{{ message['content'] }}]{% endfor %}"
    tokenizer = byte_tokenizer(template, eos_token="<end>", pad_token="<end>")
    torch.manual_seed(0)
    sizes = SIZES | {"vocab_size": len(tokenizer), "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1}
    config = LlamaConfig(**sizes | {"eos_token_id": tokenizer.eos_token_id})
    LlamaForCausalLM(config).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    return tmp_path / "base"
