"""The presets: every number of the paper's text, the memory of GPUs, and a small run of each."""

import json
import re
from contextlib import closing
from pathlib import Path

import pytest
import torch
from grpo_runs import rows
from tables import rows as rows_of
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, Qwen2Config

from bench.memory import estimate_memory
from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.presets import preset_names
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.parts import open_parts
from outcome_rl.grpo.plan import plan
from outcome_rl.grpo.trainer import Trainer
from outcome_rl_kernels.settings import settings_of

# Each data set and model, with and without exploration; the other presets change their numbers.
TRAINED = ["one-gpu", "paper/llama-3.1-8b-instruct-hard-grpo", "paper/qwen-2.5-7b-base-medium"]
PAGE_OF_MODELS = Path(__file__).parents[3] / "docs" / "larger-models.md"
PAPER = [name for name in preset_names() if name.startswith("paper/")]
SMALL = (
    "rollout.engine=transformers", "rollout.val_kwargs.n=2", "data.train_batch_size=2", "data.max_prompt_length=32",
    "data.max_response_length=8", "trainer.total_training_steps=2", "model.device=cpu",
)  # fmt: skip
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
    without_ids = [{"problem": problem, "extracted_solution": answer} for _, problem, answer in numbers]
    paths = folder / "train.jsonl", folder / "test.jsonl"
    train_rows = {"extra_info.index": nested, "problem": without_ids, "": plain}[load_config(preset).data.id_key]
    for path, content in zip(paths, (train_rows, plain), strict=True):
        path.write_text("".join(json.dumps(row) + "\n" for row in content))
    return paths


MODELS, DATA = ("llama-3.1-8b-instruct", "qwen-2.5-7b-base"), ("easy", "medium")


def test_there_is_a_preset_for_each_experiment_of_the_paper() -> None:
    both = [f"paper/{model}-{data}{run}" for model in MODELS for data in DATA for run in ("", "-grpo", "-sampling")]
    hard = ["paper/llama-3.1-8b-instruct-hard", "paper/llama-3.1-8b-instruct-hard-grpo"]  # appendix B: Llama alone
    assert sorted(PAPER) == sorted([*both, *hard])


@pytest.mark.parametrize("preset", PAPER)
def test_a_preset_has_every_number_of_the_paper(preset: str) -> None:
    """The table has all that the paper states of its experiments, and the choices of ours that must not change."""
    name = preset.removeprefix("paper/")
    method = next((one for one in ("grpo", "sampling") if name.endswith(f"-{one}")), "")
    model, _, data = name.removesuffix(f"-{method}").rpartition("-")
    found = {one.name: one.value for one in settings_of(load_config(preset))}
    for table in ("everywhere", model, data, method or f"exploration, {data}"):
        for section, setting, value in rows_of(__file__, table):
            assert found[setting] == json.loads(value), f"{preset}: {setting} must be {value} (paper, {section})"
    assert found["trainer.experiment_name"] == name


def qwen(hidden: int, mlp: int, layers: int, heads: int, kv_heads: int) -> Qwen2Config:
    is_small = hidden < 3000
    return Qwen2Config(
        vocab_size=151936 if is_small else 152064,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        tie_word_embeddings=is_small,
    )


QWEN = {
    "0.5B": qwen(896, 4864, 24, 14, 2),
    "1.5B": qwen(1536, 8960, 28, 12, 2),
    "3B": qwen(2048, 11008, 36, 16, 2),
    "7B": qwen(3584, 18944, 28, 28, 4),
}
SHAPES: dict[str, PreTrainedConfig] = {
    "llama": LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=False,
    ),
    "qwen": QWEN["7B"],
}
GPU = 80e9  # bytes


@pytest.mark.parametrize("preset", PAPER)
def test_a_preset_fits_eight_gpus(preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The models' shapes, from their public configurations; the estimate of the dry run for one of eight processes."""
    SHAPES["llama" if "llama" in preset else "qwen"].save_pretrained(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "8")
    config = load_config(preset, [f"model.path={tmp_path}"])
    estimate = estimate_memory(config)
    assert 7e9 < estimate.num_parameters < 9e9
    assert estimate.peak < 0.9 * GPU  # fragmentation and the CUDA context take the rest
    # vLLM takes its share while it samples, beside all that stays.
    stays = sum(part.num_bytes for part in estimate.parts if part.phase == "always")
    assert stays + config.rollout.gpu_memory_utilization * GPU < 0.9 * GPU


ONE_GPU = re.findall(r"^\| ([\d.]+B) \| (.*) \| ([\d.]+) \| ([\d.]+) \| (\d+) \|$", PAGE_OF_MODELS.read_text(), re.M)


def test_the_page_has_models_of_every_size() -> None:
    assert {size for size, *_ in ONE_GPU} == {*QWEN}


@pytest.mark.parametrize(("size", "settings", "update", "stays", "gpu"), ONE_GPU)
def test_what_fits_on_one_gpu(size: str, settings: str, update: str, stays: str, gpu: str, tmp_path: Path) -> None:
    QWEN[size].save_pretrained(tmp_path)
    named = [one for one in settings.strip("`").split() if "=" in one]
    config = load_config("one-gpu", [*named, f"model.path={tmp_path}"])
    assert load_config("one-gpu", named).model.path == f"Qwen/Qwen2.5-{size}-Instruct"
    estimate = estimate_memory(config)
    always = sum(part.num_bytes for part in estimate.parts if part.phase == "always")
    assert (f"{estimate.peak / 2**30:.1f}", f"{always / 2**30:.1f}") == (update, stays)
    share = config.rollout.gpu_memory_utilization
    fits = [
        common
        for common in (16, 24, 32, 40, 48, 80)
        if max(estimate.peak / 1e9, always / 1e9 + share * common) < 0.9 * common
    ]
    assert fits[0] == int(gpu)


@pytest.fixture
def model(request: pytest.FixtureRequest, tmp_path: Path, shared_policy: Policy) -> Path:
    """Make a random model of the architecture of the preset; both tokenizers have a chat template."""
    tokenizer = shared_policy.tokenizer
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    create = Qwen2Config if "qwen" in request.param else LlamaConfig
    torch.manual_seed(0)
    config = create(**shape, vocab_size=len(tokenizer), num_key_value_heads=1, eos_token_id=tokenizer.eos_token_id)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_text(TEMPLATE)
    return tmp_path / "model"


@pytest.mark.parametrize(("preset", "model"), [(name, name) for name in TRAINED], indirect=["model"])
def test_a_preset_trains(preset: str, model: Path, tmp_path: Path) -> None:
    training, test = problems(preset, tmp_path)
    files = [f"data.train_files={training}", f"data.val_files={test}", f"data.test_files={test}"]
    # A random model is never right; without a reward that differs the gradient would be rounding.
    rewards = tmp_path / f"rewards_{tmp_path.name}.py"  # each import needs a name of its own
    rewards.write_text("def length(response, example):\n    return len(set(response))\n")
    reward = f"reward.function={rewards}:length"
    config = load_config(
        preset, [*SMALL, *files, reward, f"model.path={model}", f"trainer.default_local_dir={tmp_path}"]
    )
    with closing(open_parts(plan(config))) as parts:
        prompt = parts.policy.tokenizer.decode(parts.plan.train_set.prompts[0])
        Trainer(parts).run()
    assert prompt.endswith("=>") == ("base" not in preset)  # a base model is prompted without its template
    metrics = rows(config.run_dir, "metrics")
    assert [row["step"] for row in metrics] == [1, 2]
    assert all(row["actor/grad_norm"] > 1e-3 and row["actor/lr"] == 1e-6 for row in metrics)
    saved = AutoModelForCausalLM.from_pretrained(config.run_dir / "checkpoints" / "global_step_2" / "model")
    assert saved.dtype == torch.bfloat16
