"""Parts of the vLLM engine that need no vLLM; `make test-vllm` runs the rest in an environment that has it."""

import fcntl
import os
import shutil
import tomllib
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from grpo_runs import MakeConfig
from safetensors.torch import load_file

from outcome_rl.grpo.config.schema import ModelConfig, RolloutConfig, SamplingConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout import handover, vllm_engine
from outcome_rl.grpo.rollout.handover import Handover, kept_limit_of
from outcome_rl.grpo.rollout.sampling import warper
from outcome_rl.grpo.rollout.vllm_engine import NEWEST, OLDEST, VllmEngine, check_vllm
from outcome_rl.toy import policy_dir

SHARDED = ("rollout.engine=vllm", "rollout.tensor_model_parallel_size=2")


@pytest.mark.parametrize(
    ("version", "is_supported"),
    [("0.28.0", True), ("0.33.0rc1.dev3+g1234", True), ("0.27.1", False), ("0.34.0", False), ("1.25.0", False)],
)
def test_other_versions_are_named(version: str, is_supported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_engine, "package_versions", lambda: {"vllm": version})
    named = rf"vLLM >=0\.28,<0\.34, and {version} is installed: pip install 'vllm>="
    with nullcontext() if is_supported else pytest.raises(ValueError, match=named):
        check_vllm()


def test_the_extra_has_the_same_versions() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    (requirement,) = project["optional-dependencies"]["vllm"]
    assert requirement == f"vllm>={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"


def test_a_sharded_vllm_needs_its_gpus_and_one_trainer(
    small_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_engine, "check_vllm", lambda: None)
    config = small_config(tmp_path, *SHARDED)
    VllmEngine.check(config)
    monkeypatch.setattr(vllm_engine.distributed, "world_size", lambda: 2)
    with pytest.raises(ValueError, match=r"=2 needs a trainer of one process"):
        VllmEngine.check(config)
    monkeypatch.setattr(vllm_engine.distributed, "world_size", lambda: 1)
    monkeypatch.setattr(vllm_engine.distributed, "choose_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"=2 needs as many GPUs; this process sees 1"):
        VllmEngine.check(config)


@pytest.mark.parametrize(
    ("settings", "sends", "warns"),
    [
        (("model.dtype=bfloat16",), True, False),
        (("model.dtype=float32",), False, False),  # merging loses nothing there
        (("model.dtype=float32", "rollout.merge_adapters=false"), True, False),
        (("model.dtype=bfloat16", "rollout.merge_adapters=true"), False, True),
        (("model.dtype=bfloat16", "model.lora_rank=0"), False, False),
    ],
)
def test_adapters_are_not_rounded_away(
    settings: tuple[str, ...],
    sends: bool,
    warns: bool,
    small_config: MakeConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = small_config(tmp_path, "rollout.engine=vllm", "model.lora_rank=4", *settings)
    assert vllm_engine.sends_adapters(config) == sends
    monkeypatch.setattr(vllm_engine, "check_vllm", lambda: None)
    VllmEngine.check(config)
    monkeypatch.setattr(VllmEngine, "__init__", lambda *_: None)
    VllmEngine.open(None, config)  # type: ignore[arg-type]
    assert ("samples from nearly the initial model" in caplog.text) == warns


@dataclass
class FlatLogprobs:
    """The fields of vLLM's class that are read, with the layout of its samplers: the sampled token, then the best n."""

    start_indices: list[int] = field(default_factory=list)
    end_indices: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def append(self, logps_V: torch.Tensor, token: int, n: int) -> None:
        self.start_indices.append(len(self.token_ids))
        best = logps_V.topk(n)
        self.token_ids += [token, *best.indices.tolist()]
        self.logprobs += [logps_V[token].item(), *best.values.tolist()]
        self.end_indices.append(len(self.token_ids))


@pytest.mark.parametrize("settings", [{"top_k": 5}, {"top_k": 30, "top_p": 0.9}, {"top_k": 500, "top_p": 0.9}], ids=str)
def test_kept_tokens_of_vllms_log_probabilities(settings: dict[str, Any]) -> None:
    """Those whose logits the filters left."""
    policy, sampling = Policy.load(ModelConfig(path="toy", device="cpu")), RolloutConfig(temperature=1.5, **settings)
    limit, V = kept_limit_of(policy, sampling), policy.head.weight.shape[0]
    generator = torch.Generator().manual_seed(0)
    logits_TV = warper(sampling)(3 * torch.randn(40, V, generator=generator))
    tokens = torch.multinomial(logits_TV.softmax(dim=-1), 1, generator=generator)[:, 0].tolist()
    flat = FlatLogprobs()
    for logps_V, token in zip(logits_TV.log_softmax(dim=-1), tokens, strict=True):
        flat.append(logps_V, token, limit)
    logps, kept = vllm_engine._logps_and_kept(flat, sampling)
    assert kept == [row.isfinite().nonzero()[:, 0].tolist() for row in logits_TV]
    assert logps == logits_TV.log_softmax(dim=-1)[torch.arange(40), tokens].tolist()
    assert vllm_engine._logps_and_kept(flat, SamplingConfig()) == (logps, None)


def test_kept_tokens_that_vllm_did_not_return_are_an_error() -> None:
    """It keeps all tokens that tie with the last of the k: more than it was asked for, if all tie."""
    policy, sampling = Policy.load(ModelConfig(path="toy", device="cpu")), RolloutConfig(top_k=2)
    V, limit = policy.head.weight.shape[0], kept_limit_of(policy, sampling)
    tied, all_tied = FlatLogprobs(), FlatLogprobs()
    tied.append(torch.full((V,), -torch.inf).index_fill(0, torch.arange(limit), 0.0).log_softmax(0), 3, limit)
    assert vllm_engine._logps_and_kept(tied, sampling)[1] == [[*range(limit)]]
    all_tied.append(torch.zeros(V).log_softmax(0), 3, limit)
    with pytest.raises(ValueError, match=r"top_k=2: vLLM kept more than 1\d tokens"):
        vllm_engine._logps_and_kept(all_tied, sampling)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_are_handed_over_as_published(dtype: str) -> None:
    policy = Policy.load(ModelConfig(path="toy", device="cpu", dtype=dtype))
    published, handed_over = load_file(policy_dir() / "model.safetensors"), policy.published_weights()
    assert handed_over.keys() == published.keys()
    held = {parameter.data_ptr() for parameter in policy.model.parameters()}
    for name, tensor in published.items():
        assert torch.equal(handed_over[name], tensor.to(policy.model.dtype))
        assert handed_over[name].data_ptr() in held  # no copy


@pytest.mark.parametrize(("free", "inside"), [(2**30, True), (2**20, False)])
def test_weights_go_to_a_temporary_folder_if_shared_memory_is_small(
    free: int, inside: bool, shared_policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights of the toy policy take 2 MB."""
    monkeypatch.setattr(handover, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**31, 2**31 - free, free))
    made = Handover(shared_policy)
    assert (Path(made.name).parent == tmp_path) == inside
    made.cleanup()
    assert not Path(made.name).exists()
    assert list(tmp_path.iterdir()) == []


def test_a_start_removes_folders_whose_trainer_was_killed(
    shared_policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "SHARED_MEMORY", tmp_path)
    in_use, killed, new = (tmp_path / f"outcome-rl-weights-{name}" for name in ("in_use", "killed", "new"))
    for folder in (in_use, killed, new):
        folder.mkdir()
        (folder / "lock").touch()
    for folder in (in_use, killed):
        os.utime(folder / "lock", (0, 0))
    with (in_use / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        made = Handover(shared_policy)
        assert set(tmp_path.iterdir()) == {in_use, new, Path(made.name)}
        made.cleanup()
