"""The presets of the paper train; only size and engine are changed."""

import json
from pathlib import Path

import pytest
import torch
from grpo_runs import rows
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.presets import preset_names
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.trainer import Trainer

PAPER = [name for name in preset_names() if name.startswith("paper/")]
SMALL = (
    "rollout.engine=transformers",
    "rollout.val_kwargs.n=2",
    "data.train_batch_size=2",
    "data.max_prompt_length=32",
    "data.max_response_length=8",
    "trainer.total_training_steps=2",
    "trainer.num_threads=1",
    "model.device=cpu",
)
TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}{% endfor %}{% if add_generation_prompt %} =>{% endif %}"
)


def problems(preset: str, folder: Path) -> tuple[Path, Path]:
    """Write training and evaluation data with the columns of the preset."""
    numbers = [(f"q{i}", f"{i} 2- 6", str(i)) for i in range(4)]
    plain = [{"id": name, "problem": problem, "answer": answer} for name, problem, answer in numbers]
    nested = [
        {"extra_info": {"index": name}, "prompt": problem, "reward_model": {"ground_truth": answer}}
        for name, problem, answer in numbers
    ]
    paths = folder / "train.jsonl", folder / "test.jsonl"
    train_rows = nested if load_config(preset).data.id_key == "extra_info.index" else plain
    for path, content in zip(paths, (train_rows, plain), strict=True):
        path.write_text("".join(json.dumps(row) + "\n" for row in content))
    return paths


@pytest.fixture
def model(request: pytest.FixtureRequest, tmp_path: Path, shared_policy: Policy) -> Path:
    """Make a random model of the architecture of the preset; both tokenizers have a chat template."""
    tokenizer = shared_policy.tokenizer
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    create = LlamaConfig if "llama" in request.param else Qwen2Config
    torch.manual_seed(0)
    config = create(**shape, vocab_size=len(tokenizer), num_key_value_heads=1, eos_token_id=tokenizer.eos_token_id)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_text(TEMPLATE)
    return tmp_path / "model"


@pytest.mark.parametrize(("preset", "model"), [(name, name) for name in PAPER], indirect=["model"])
def test_a_preset_trains(preset: str, model: Path, tmp_path: Path) -> None:
    training, test = problems(preset, tmp_path)
    files = [f"data.train_files={training}", f"data.val_files={test}", f"data.test_files={test}"]
    config = load_config(preset, [*SMALL, *files, f"model.path={model}", f"trainer.default_local_dir={tmp_path}"])
    trainer = Trainer(config)
    try:
        prompt = trainer.policy.tokenizer.decode(trainer.train_set.prompts[0])
        trainer.run()
    finally:
        trainer.close()
    assert prompt.endswith("=>") == ("llama" in preset)  # a base model is prompted without its template
    metrics = rows(config.run_dir, "metrics")
    assert [row["step"] for row in metrics] == [1, 2]
    assert all(row["actor/grad_norm"] > 0 and row["actor/lr"] == 1e-6 for row in metrics)
    saved = AutoModelForCausalLM.from_pretrained(config.run_dir / "checkpoints" / "global_step_2" / "model")
    assert saved.dtype == torch.bfloat16
