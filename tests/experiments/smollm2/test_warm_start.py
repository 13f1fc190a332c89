"""The warm start raises the likelihood of demonstrations."""

from itertools import islice
from pathlib import Path

import pytest
import torch
from tiny_models import SIZES
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from experiments.smollm2.task import questions
from experiments.smollm2.warm_start import warm_start


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


def test_demonstrations_become_likelier(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warm_start(base, tmp_path / "warm", steps=20)
    losses = [float(line.split()[3].rstrip(",")) for line in capsys.readouterr().out.splitlines()]
    assert len(losses) == 4
    assert losses == sorted(losses, reverse=True)
    question = next(islice(questions("warm"), 1000, None))  # one that it has not seen
    before, after = (_loss(folder, question.text, question.demonstration) for folder in (base, tmp_path / "warm"))
    assert after < before - 0.1


def _loss(folder: Path, text: str, demonstration: str) -> float:
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    prompt, response = (tokenizer(piece)["input_ids"] for piece in (f"[{text}]", demonstration))
    ids = torch.tensor([prompt + response])
    labels = torch.tensor([[-100] * len(prompt) + response])
    with torch.no_grad():
        return float(model(ids, labels=labels).loss)
