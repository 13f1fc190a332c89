"""A tiny model for the experiment on SmolLM2."""

from pathlib import Path

import pytest
import torch
from tiny_models import SIZES
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A random model whose tokens are bytes, with a chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    letters.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters, eos_token="<end>", pad_token="<end>")
    tokenizer.chat_template = "{% for message in messages %}[{{ message['content'] }}]{% endfor %}"
    torch.manual_seed(0)
    sizes = SIZES | {"vocab_size": len(tokenizer), "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1}
    config = LlamaConfig(**sizes | {"eos_token_id": tokenizer.eos_token_id})
    LlamaForCausalLM(config).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    return tmp_path / "base"
