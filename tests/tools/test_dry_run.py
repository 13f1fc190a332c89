"""Estimates equal the memory of a real model of the same shape."""

import shutil
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from grpo_runs import MakeOverrides, as_rank, invoke
from transformers import LlamaConfig, LlamaForCausalLM

from outcome_rl import Explorer
from outcome_rl.files.jsonl import write_rows
from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.schema import ModelConfig, TrainConfig
from outcome_rl.grpo.model.lora import add_adapters
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.tools import dry_run
from outcome_rl.tools.dry_run import describe, refusals, steps_per_epoch
from outcome_rl.tools.memory import MemoryEstimate, Part, estimate_memory, kept_for_backward, memory_lines
from outcome_rl.toy import policy_dir


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[LlamaForCausalLM, Path]:
    shape = LlamaConfig(
        vocab_size=50,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=request.param,
    )
    folder = tmp_path_factory.mktemp("llama")
    shape.save_pretrained(folder)  # the configuration alone: there are no weights to load
    return LlamaForCausalLM(shape), folder


def config_of(folder: Path, *overrides: str) -> TrainConfig:
    sizes = ("data.max_prompt_length=5", "data.max_response_length=7", "actor.ppo_micro_batch_size_per_gpu=4")
    return load_config("toy", [f"model.path={folder}", *sizes, *overrides])


def parts(config: TrainConfig) -> dict[str, int]:
    return {part.name.split(",")[0].split(" of ")[0]: part.num_bytes for part in estimate_memory(config).parts}


def num_bytes(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def test_weights_gradients_and_optimizer(model: tuple[LlamaForCausalLM, Path]) -> None:
    real, folder = model
    estimated = parts(config_of(folder))
    optimizer = torch.optim.AdamW(real.parameters())
    ids = torch.ones(4, 12, dtype=torch.long)
    real(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    weights = list(real.parameters())
    moments = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    assert estimated["weights"] == num_bytes(weights)
    assert estimated["gradients"] == num_bytes([weight.grad for weight in weights if weight.grad is not None])
    assert estimated["AdamW"] == num_bytes(moments)
    assert estimated["reference policy"] == num_bytes(weights)
    assert estimate_memory(config_of(folder)).num_parameters == sum(weight.numel() for weight in weights)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activations(dtype: str, model: tuple[LlamaForCausalLM, Path]) -> None:
    real, folder = model
    policy = Policy(deepcopy(real).to(getattr(torch, dtype)), tokenizer=None)
    assert parts(config_of(folder, f"model.dtype={dtype}"))["activations"] == kept_for_backward(policy, 4, 12)
    own, lora = deepcopy(real).to(getattr(torch, dtype)), ModelConfig(path=str(folder), lora_rank=2)
    adapted = Policy(own, None, add_adapters(own, lora))  # float32 adapters read float32 copies of their inputs
    estimated = parts(config_of(folder, f"model.dtype={dtype}", "model.lora_rank=2"))
    assert estimated["activations"] == kept_for_backward(adapted, 4, 12)
    few = ("actor.ppo_micro_batch_size_per_gpu=64", "data.train_batch_size=1", "rollout.n=2")  # no more than there are
    assert parts(config_of(folder, f"model.dtype={dtype}", *few))["activations"] == kept_for_backward(policy, 2, 12)


def test_settings_that_save_memory_lower_the_estimate(model: tuple[LlamaForCausalLM, Path]) -> None:
    real, folder = model
    number = sum(weight.numel() for weight in real.parameters())
    whole = parts(config_of(folder))
    half = parts(config_of(folder, "model.dtype=bfloat16"))
    assert [half[name] for name in ("weights", "master weights", "AdamW", "gradients")] == [
        number * size for size in (2, 4, 8, 4)
    ]
    assert half["reference policy"] == number * 2
    lora = parts(config_of(folder, "model.lora_rank=2"))
    assert "reference policy" not in lora
    assert lora["weights"] - whole["weights"] == lora["gradients"] == lora["AdamW"] // 2 > 0
    assert lora["gradients"] < whole["gradients"] / 4
    checkpointed = parts(config_of(folder, "model.enable_gradient_checkpointing=true"))
    assert checkpointed["activations"] < whole["activations"] / 2
    budget = parts(config_of(folder, "actor.use_dynamic_bsz=true", "actor.ppo_max_token_len_per_gpu=24"))
    assert budget["activations"] == kept_for_backward(Policy(real, tokenizer=None), 2, 12)
    offloaded = estimate_memory(config_of(folder, "actor.ref_param_offload=true"))
    assert {part.name: part.phase for part in offloaded.parts}["reference policy"] == "update"


def test_activations_grow_with_tokens_and_exclude_weights(model: tuple[LlamaForCausalLM, Path]) -> None:
    real, _ = model
    policy = Policy(real, tokenizer=None)
    small, large = kept_for_backward(policy, 2, 16), kept_for_backward(policy, 4, 16)
    assert small < large <= 2 * small
    # At least, for one token in one layer: inputs of norms, projections, attention and MLP.
    assert small >= 2 * 16 * 3 * (4 * 48 + 3 * 80) * 4


def test_the_cache_of_rollouts(model: tuple[LlamaForCausalLM, Path]) -> None:
    real, folder = model
    estimated = parts(config_of(folder, "rollout.micro_batch_size=4"))["cache"]
    cache = real(input_ids=torch.ones(4, 12, dtype=torch.long), use_cache=True).past_key_values
    assert estimated == num_bytes([states for layer in cache.layers for states in (layer.keys, layer.values)])


def test_disabled_parts_cost_nothing(model: tuple[LlamaForCausalLM, Path]) -> None:
    _, folder = model
    names = parts(config_of(folder, "actor.kl_loss_coef=0", "rollout.engine=vllm")).keys()
    assert not {"reference policy", "cache"} & names


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sharded_parts_are_divided(dtype: str, model: tuple[LlamaForCausalLM, Path]) -> None:
    real, folder = model
    number, size = sum(weight.numel() for weight in real.parameters()), 4 if dtype == "float32" else 2
    settings = (f"model.dtype={dtype}", "actor.strategy=fsdp2")
    assert parts(config_of(folder, *settings)) == parts(config_of(folder, f"model.dtype={dtype}"))  # of one process
    with as_rank(0, 4):
        estimated = parts(config_of(folder, *settings))
    assert "weights" not in estimated
    for name, whole in (("master weights", 4), ("AdamW", 8), ("gradients", 4), ("reference policy", size)):
        assert estimated[name] == -(-number * whole // 4)
    assert estimated["gathered weights"] == number * size
    layer = sum(weight.numel() for weight in real.model.layers[0].parameters())
    assert estimated["gathered weights and gradients"] == 2 * size * (number - layer)  # two of three layers
    whole = parts(config_of(folder, *settings, "model.lora_rank=2"))
    with as_rank(0, 4):
        lora = parts(config_of(folder, *settings, "model.lora_rank=2"))
    for name in ("weights", "AdamW", "gradients"):
        assert lora[name] == -(-whole[name] // 4)
    assert whole["weights"] == number * size + whole["gradients"]  # the adapters are in float32
    assert "master weights" not in lora
    assert lora["gathered weights and gradients"] == size * (number - layer)  # frozen weights have no gradients


def test_phases_alternate() -> None:
    estimate = MemoryEstimate(
        1, [Part("a", 10, "always"), Part("b", 5, "update"), Part("c", 4, "update"), Part("d", 8, "rollout")]
    )
    assert estimate.peak == 19


def test_eight_billion_parameters_are_not_loaded(tmp_path: Path) -> None:
    llama = LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
    )
    llama.save_pretrained(tmp_path)
    lines = list(describe(load_config("paper/llama-3.1-8b-instruct-easy", [f"model.path={tmp_path}"])))
    assert lines[0] == "Memory of one process, of 8,030,261,248 parameters:"
    for part, size in (("weights, bfloat16", "15.0 GiB"), ("master weights, float32", "29.9 GiB")):
        assert any(part in line and size in line for line in lines), part
    assert "  vLLM in addition: 50% of the GPU's memory, given back between rollouts" in lines
    assert lines[-1] == "Steps: unknown until jeggers/competition_math:original@train is loaded"


def test_steps_are_counted_for_local_problems(tmp_path: Path, small: MakeOverrides) -> None:
    path = tmp_path / "problems.jsonl"
    write_rows(path, [{"id": i, "problem": "?", "answer": "1"} for i in range(30)])
    config = load_config("toy", [f"data.train_files={path}", "data.train_batch_size=8"])
    assert steps_per_epoch(config) == 3
    assert list(describe(config))[-1] == "Steps: 3 per epoch, 150 in all"


def test_steps_are_those_of_the_prompts_that_fit(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl"
    write_rows(path, [{"id": i, "problem": "D01 " * (1 if i % 2 else 9), "answer": "1"} for i in range(30)])
    settings = ["data.train_batch_size=4", "data.max_prompt_length=8", "data.overlong_prompts=filter"]
    assert steps_per_epoch(load_config("toy", [f"data.train_files={path}", *settings])) == 3


def test_a_model_that_cannot_be_estimated_is_no_obstacle(
    tmp_path: Path, small: MakeOverrides, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(config: TrainConfig) -> None:
        raise RuntimeError("Expected inputs of BF16 type")

    monkeypatch.setattr(dry_run, "estimate_memory", fail)
    result = invoke("--config", "toy", "--dry-run", *small(tmp_path))
    assert result.exit_code == 0, result.stderr
    assert "# Memory: unknown, because the model cannot be computed without weights: RuntimeError(" in result.stdout


def test_dry_run_prints_settings_that_can_be_read(tmp_path: Path, small: MakeOverrides) -> None:
    result = invoke("--config", "toy", "--dry-run", *small(tmp_path, "rollout.n=5"))
    assert result.exit_code == 0, result.output
    (tmp_path / "printed.yaml").write_text(result.stdout)
    assert load_config(tmp_path / "printed.yaml").rollout.n == 5
    assert "# Memory of one process, of 505,344 parameters:" in result.stdout
    assert "# Steps: 2 per epoch, 6 in all" in result.stdout
    assert not (tmp_path / "run").exists()


def test_only_rank_zero_prints(tmp_path: Path, small: MakeOverrides) -> None:
    lines = []
    for rank in range(2):
        with as_rank(rank, 2):
            lines.append(invoke("--config", "toy", "--dry-run", *small(tmp_path, "actor.strategy=fsdp2")).stdout)
    assert "#     gathered weights and gradients" in lines[0]
    assert lines[1] == ""


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["model.path=no/such/model"], "model.path='no/such/model' cannot be loaded: there is no such folder"),
        (["rollout.engine=vllm"], "rollout.engine=vllm, but vLLM is not installed"),
        (["trainer.logger=[console,wandb]"], "trainer.logger names 'wandb'"),
        (["data.max_prompt_length=4"], "longer than data.max_prompt_length = 4 tokens"),
        (["data.train_files=missing.jsonl"], "missing.jsonl"),
        (["data.train_files=[problems.xlsx]"], "problems.xlsx: not a .jsonl"),
        (["trainer.default_local_dir=/dev/null/runs"], "/dev/null/runs/run"),
        (["data.max_response_length=100000"], "positions of the model"),
        (["reward.function=none.py:reward"], "reward.function: none.py:reward: there is no file none.py"),
    ],
)
def test_a_dry_run_refuses_what_the_run_refuses(
    settings: list[str], reason: str, tmp_path: Path, small: MakeOverrides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outcome_rl.grpo.run.tracking.find_spec", lambda module: None)
    monkeypatch.setattr("outcome_rl.grpo.rollout.vllm_engine.package_versions", lambda: {"vllm": "not installed"})
    arguments = ["--config", "toy", *small(tmp_path, *settings)]
    dry, run = invoke(*arguments, "--dry-run"), invoke(*arguments)
    assert dry.exit_code == run.exit_code == 2
    assert reason in dry.stderr
    assert reason in run.stderr
    assert run.stderr.startswith("error: ")
    assert dry.stderr.startswith("error: the run would not start here: ")
    assert dry.stderr.count("\n") == run.stderr.count("\n") == 1
    assert "trainer:" in dry.stdout


def assert_refused_alike(arguments: list[str], reason: str) -> None:
    dry, run = invoke(*arguments, "--dry-run"), invoke(*arguments)
    assert dry.exit_code == run.exit_code == 2
    assert dry.stderr.count(reason) == 1
    assert reason in run.stderr


def test_a_dry_run_refuses_a_batch_that_a_filter_leaves_too_few_problems_for(
    tmp_path: Path, small: MakeOverrides
) -> None:
    problems = [{"id": i, "problem": "D01 2 =>" if i else "D01 2 => 3 =>", "answer": "1"} for i in range(8)]
    write_rows(tmp_path / "problems.jsonl", problems)
    data = [f"data.train_files={tmp_path / 'problems.jsonl'}", "data.overlong_prompts=filter"]
    arguments = ["--config", "toy", *small(tmp_path, *data, "data.max_prompt_length=5", "data.train_batch_size=8")]
    assert_refused_alike(arguments, "must be at most the number of training problems, 7; got 8")


def test_a_dry_run_refuses_another_run_in_the_folder(finished: Path, tmp_path: Path, small: MakeOverrides) -> None:
    shutil.copytree(finished, tmp_path / "run")
    assert invoke("--config", "toy", "--dry-run", *small(tmp_path)).exit_code == 0
    for setting, reason in (
        ("actor.optim.lr=1e-2", "belongs to another run: actor.optim.lr"),
        ("data.test_files=[]", "belongs to another run: test data"),
        ("trainer.total_training_steps=3", "has done 6"),
    ):
        assert_refused_alike(["--config", "toy", *small(tmp_path, setting)], reason)
    newest = tmp_path / "run" / "checkpoints" / "global_step_6"
    (newest / "optimizer.pt").write_bytes(b"damaged")
    assert_refused_alike(["--config", "toy", *small(tmp_path)], "optimizer.pt")


def test_a_dry_run_refuses_a_model_that_cannot_be_trained(tmp_path: Path, small: MakeOverrides) -> None:
    shutil.copytree(policy_dir(), tmp_path / "model")
    path = f"model.path={tmp_path / 'model'}"
    lora = small(tmp_path, path, "model.lora_rank=2", "model.target_modules=[lm_head]")
    assert_refused_alike(["--config", "toy", *lora], "on the lm_head")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    dry = invoke("--config", "toy", "--dry-run", *small(tmp_path, path))
    assert dry.exit_code == 2
    assert "cannot be trained: " in dry.stderr
    weights.unlink()
    dry = invoke("--config", "toy", "--dry-run", *small(tmp_path, path))
    assert dry.exit_code == 2
    assert "holds no weights" in dry.stderr


def test_a_dry_run_refuses_two_sources_of_one_name(tmp_path: Path, small: MakeOverrides) -> None:
    sources = []
    for kind, answer in (("val", "1"), ("test", "2")):
        write_rows(path := tmp_path / kind / "problems.jsonl", [{"id": 1, "problem": "D01 2 @ 1 =>", "answer": answer}])
        sources.append(f"data.{kind}_files={path}")
    assert_refused_alike(["--config", "toy", *small(tmp_path, *sources)], "two different sources named 'problems'")


def test_a_dry_run_refuses_counts_of_other_questions(tmp_path: Path, small: MakeOverrides) -> None:
    with Explorer() as explorer:
        explorer.score(["gsm8k:7"], [r"\boxed{1}"], ["1"])
        explorer.save(tmp_path / "other")
    setting = f"trainer.initial_exploration={tmp_path / 'other'}"
    reason = "have ids such as 'gsm8k:7', and this run's like 'dialect0"
    assert_refused_alike(["--config", "toy", *small(tmp_path, setting)], reason)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_dry_run_refuses_a_missing_gpu_and_every_other_fault_at_once(tmp_path: Path, small: MakeOverrides) -> None:
    settings = small(tmp_path, "model.device=cuda", "model.path=no/such/model")
    result = invoke("--config", "toy", "--dry-run", *settings)
    assert result.exit_code == 2
    assert "model.device='cuda', but PyTorch sees no GPU" in result.stderr
    assert "model.path='no/such/model' cannot be loaded" in result.stderr
    assert "# Memory: unknown, because the configuration of model.path='no/such/model' cannot be read" in result.stdout
    assert "# Steps: 2 per epoch" in result.stdout


def test_memory_is_compared_with_the_machine() -> None:
    lines = list(describe(load_config("toy", ["model.device=cpu"])))
    (there,) = [line for line in lines if line.startswith("  memory of this machine")]
    assert "TOO LITTLE" not in there
    large = MemoryEstimate(1, [Part("a", 2**60, "always")])
    assert any("TOO LITTLE" in line for line in memory_lines(large, load_config("toy", ["model.device=cpu"])))


def test_one_cause_is_given_once(tmp_path: Path, small: MakeOverrides, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError("the hub cannot be reached")

    monkeypatch.setattr("outcome_rl.tools.dry_run.estimate_memory", unreachable)
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", unreachable)
    reasons = list(refusals(load_config("toy", small(tmp_path))))
    assert [reason for reason in reasons if "the hub cannot be reached" in reason] == [
        "model.path='toy' cannot be trained: the hub cannot be reached"
    ]
