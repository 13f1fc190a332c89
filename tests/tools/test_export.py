"""Export of checkpoints for other libraries."""

from pathlib import Path

import pytest
import torch
from command_line import Result, invoke
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from outcome_rl import cli
from outcome_rl.grpo.model.policy import Policy


def export(*arguments: object) -> Result:
    return invoke(cli.main, "export", *arguments)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_transformers_loads_it(dtype: str, finished: Path, tmp_path: Path) -> None:
    place, out = finished / "checkpoints" / "global_step_4", tmp_path / "out"
    result = export(place, out, "--dtype", dtype)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{out}/ holds 505,344 parameters in {dtype}\n"
    model = AutoModelForCausalLM.from_pretrained(out)
    trained = AutoModelForCausalLM.from_pretrained(place / "model")
    assert model.dtype == getattr(torch, dtype)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, trained.state_dict()[name].to(weight.dtype)), name
    assert GenerationConfig.from_pretrained(out).eos_token_id is not None
    text = "D01 1 @ 1 # 1 =>"
    expected = AutoTokenizer.from_pretrained(place / "model")(text)["input_ids"]
    assert AutoTokenizer.from_pretrained(out)(text)["input_ids"] == expected
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    result = export(tmp_path / "missing", tmp_path / "out")
    assert result.exit_code == 2
    assert "missing' holds no model" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Policy, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Policy, "save", full)
    assert export(finished, tmp_path / "out").exit_code == 2
    assert list(tmp_path.iterdir()) == []
