"""Steps of the trainer as a GPU would run them, on meta tensors: no operation mixes devices, and the host waits
for nothing but what is named here.
"""

import copy
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from grpo_runs import MakeConfig, Sample, columns, scored_batch, updater_of, with_logps
from ledger import Ledger, ledger_of
from torch import Tensor
from torch.utils._pytree import tree_map_only

pytest.importorskip("triton", reason="Triton has no build for this platform")

from meta_gpu import replace_kernels, take_meta_for_gpu

from outcome_rl.grpo.config.schema import SamplingConfig
from outcome_rl.grpo.model import policy as policy_module
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.decode_loop import CHECK_EVERY, decode
from outcome_rl.grpo.update import updater as updater_module

GPU = torch.device("meta")


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    take_meta_for_gpu(monkeypatch)
    replace_kernels(monkeypatch)
    # The batch goes to a GPU from pinned memory, without a wait.
    monkeypatch.setattr(updater_module, "to_device", copied)
    # One of several operations has the same waits as the fused one, which knows no such device.
    monkeypatch.setattr(torch.optim, "AdamW", partial(plain_adamw, torch.optim.AdamW))


def copied(records: Any, device: torch.device) -> Any:
    return tree_map_only(Tensor, partial(torch.empty_like, device=device), records)


def plain_adamw(kind: Any, parameters: Any, *, fused: bool, **settings: Any) -> Any:
    assert fused
    return kind(parameters, fused=False, foreach=False, **settings)


def flash_attention(query: Tensor, key: Tensor, value: Tensor, **bounds: Any) -> Tensor:
    """A stand-in for flash-attn's function, with a gradient for every input."""
    assert query.is_meta
    assert key.shape == value.shape
    assert all(bounds[name].is_meta and bounds[name].dtype == torch.int32 for name in ("cu_seqlens_q", "cu_seqlens_k"))
    assert isinstance(bounds["max_seqlen_q"], int)
    assert isinstance(bounds["max_seqlen_k"], int)
    return query + key.sum() + value.sum()


@pytest.fixture(params=["flash-attn", "without"])
def attention(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the layout of flash-attn, or with that of PyTorch's attention."""
    kind: str = request.param
    if kind == "flash-attn":
        package = ModuleType("flash_attn")
        package.flash_attn_varlen_func = flash_attention
        monkeypatch.setitem(sys.modules, "flash_attn", package)
        monkeypatch.setattr(policy_module, "can_use_flash_attention", lambda device, dtype: True)
    return kind


@pytest.fixture(scope="module")
def batch(shared_policy: Policy) -> list[Sample]:
    """Seven responses to prompts, all of different lengths, with made-up scores."""
    return scored_batch(shared_policy)


def on_gpu(policy: Policy, *, packs: bool = True) -> Policy:
    model = copy.deepcopy(policy.model).to(GPU, torch.bfloat16)
    if not packs:
        model.set_attn_implementation("sdpa")
    return Policy(model, policy.tokenizer)


# Settings, and what the host waits for in an update of a batch of seven questions: a gradient norm each optimizer step.
SETTINGS: dict[str, tuple[list[str], int]] = {
    "default": ([], 1),
    "micro-batches": (["actor.ppo_max_token_len_per_gpu=64"], 1),
    "KL": (["actor.kl_loss_coef=0.1"], 1),
    "two epochs of two mini-batches": (["actor.ppo_epochs=2", "actor.ppo_mini_batch_size=1", "rollout.n=4"], 4),
    "sequences": (["actor.loss_mode=gspo"], 1),
    "importance weights": (["rollout.engine=vllm", "rollout.importance_cap=2.0"], 1),
    "unpacked": (["model.use_remove_padding=false"], 3),  # transformers looks for gaps in the mask, twice
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_step_waits_for_each_gradient_norm_and_once_for_the_metrics(
    name: str, attention: str, shared_policy: Policy, batch: list[Sample], small_config: MakeConfig
) -> None:
    settings, numbers_read = SETTINGS[name]
    config = small_config(Path("unused"), *settings)
    if name == "importance weights":
        batch = with_logps(batch, [[-1.0] * len(sample.rollout.token_ids) for sample in batch])
    policy = on_gpu(shared_policy, packs=config.model.use_remove_padding)
    updater = updater_of(policy, config, total_steps=10)
    for _ in range(2):
        assert ledger_of(lambda ledger: updater.step(columns(batch))).waits == ["item"] * numbers_read + ["to host"]
    for parameter in updater.weights.parameters:
        assert parameter.dtype == parameter.grad.dtype == torch.float32


@pytest.mark.parametrize("lengths", [[5, 5], [5, 2]], ids=["equal prompts", "padded prompts"])
def test_decoding_waits_at_intervals(lengths: list[int], shared_policy: Policy) -> None:
    policy, max_tokens = on_gpu(shared_policy), 3 * CHECK_EVERY
    prompts = [[token] * length for token, length in zip((7, 8), lengths, strict=True) for _ in range(2)]

    def call(ledger: Ledger) -> None:
        responses = decode(policy, prompts, [1, 2, 3, 4], SamplingConfig(temperature=0.7), max_tokens)
        assert len(responses) == 4

    waits = ledger_of(call).waits
    padded = lengths[0] != lengths[1]
    there = ["_to_copy"] * (3 + padded)  # ends, numbers to draw with, prompts, and their mask
    # transformers looks for gaps in the mask of the prompts.
    assert waits == [*there, *["item"] * padded, *["nonzero"] * 3, "to host"]
