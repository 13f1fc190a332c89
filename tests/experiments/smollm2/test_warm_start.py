"""The warm start raises the likelihood of demonstrations."""

from itertools import islice
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from experiments.smollm2.task import questions
from experiments.smollm2.warm_start import warm_start


def test_demonstrations_become_likelier(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warm_start(base, tmp_path / "warm", steps=20)
    steps = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step")]
    assert len(steps) == 20
    losses = [float(line.split()[3].rstrip(",")) for line in steps[4::5]]
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
