"""A sharded policy learns, samples and saves the same as one in a single process."""

import copy
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from grpo_runs import (
    MODEL,
    RANKS,
    MakeConfig,
    MakeOverrides,
    Process,
    Sample,
    as_rank,
    check_bad_gradient,
    check_rollouts,
    columns,
    needs_gloo,
    one_by_one,
    rows,
    scored_batch,
    two_policies,
    updater_of,
    updates_together_and_alone,
)
from ranks import free_port, start
from stopped_program import Stop
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import LlamaConfig, LlamaForCausalLM

from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.model.fsdp import full_state
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.trainer import train
from outcome_rl.grpo.update.updater import Updater

FSDP2 = "actor.strategy=fsdp2"
CONFIG = [
    "model.device=cpu",
    FSDP2,
    "actor.kl_loss_coef=0.1",
    "actor.optim.lr=1e-2",
    "actor.grad_clip=0.01",
    "actor.ppo_epochs=2",
    "rollout.n=2",
]


@pytest.mark.slow
@needs_gloo
def test_two_processes_equal_one(tmp_path: Path) -> None:
    shape = LlamaConfig(
        vocab_size=131,  # 131 rows do not divide by two
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        tie_word_embeddings=False,
        eos_token_id=2,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(shape).save_pretrained(tmp_path / "untied")
    Policy.load(MODEL).tokenizer.save_pretrained(tmp_path / "untied")
    start(run_rank, (free_port(), tmp_path), RANKS)


def run_rank(rank: int, port: int, folder: Path) -> None:
    torch.set_num_threads(1)
    config = load_config("toy", CONFIG)
    with (
        as_rank(rank, RANKS, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)),
        distributed.process_group(config.model.device),
    ):
        policy = Policy.load(MODEL)
        with as_rank(0, 1):
            batch = scored_batch(policy)
        check_all_updates(batch, str(folder / "untied"), rank)
        check_parts_and_files(policy, batch, config, rank, folder)
        check_rounded(batch, rank)
        check_bad_gradient(Policy.load(MODEL), batch, config, rank)
        check_mixed_dtypes(Policy.load(MODEL))
        check_adapters(batch, config, rank, folder)


def check_all_updates(batch: Sequence[Sample], untied: str, rank: int) -> None:
    def settings(*more: str) -> TrainConfig:
        return load_config("toy", [*CONFIG, *more])

    # Four micro-batches in the one process, three in the other.
    check_updates(two_policies(), batch, one_by_one(settings()), rank)
    # Mini-batches of 2, 2, 2 and 1 responses, the last of which leaves a process without work.
    sequences = ["actor.loss_mode=gspo", "actor.entropy_coeff=0.01", "exploration.answer_mask_mode=all"]
    check_updates(two_policies(path=untied), batch, settings("actor.ppo_mini_batch_size=1", *sequences), rank)
    padded = two_policies(use_remove_padding=False, enable_gradient_checkpointing=True)
    check_updates(padded, batch, one_by_one(settings("actor.ppo_epochs=1")), rank)


def check_updates(policies: Sequence[Policy], batch: Sequence[Sample], config: TrainConfig, rank: int) -> None:
    """Compare updates of two processes with those of one: equal gradients and steps."""
    together, alone, stats = updates_together_and_alone(policies, batch, config, rank, RANKS)
    for parameter, same in zip(together, alone, strict=True):
        assert isinstance(parameter, DTensor)
        assert not isinstance(same, DTensor)
        torch.testing.assert_close(full_state(parameter.grad, everywhere=True), same.grad, rtol=1e-4, atol=1e-9)
        torch.testing.assert_close(full_state(parameter.detach(), everywhere=True), same.detach(), rtol=1e-4, atol=1e-7)
    assert stats["actor/grad_norm"] > config.actor.grad_clip  # which scales it


def check_parts_and_files(
    policy: Policy, batch: Sequence[Sample], config: TrainConfig, rank: int, folder: Path
) -> None:
    """Check the shards, the responses and the saved files of each process."""
    plain = Policy.load(MODEL)
    number = sum(parameter.numel() for parameter in plain.model.parameters())
    updater = updater_of(policy, config, total_steps=10)
    check_rollouts(policy, plain)  # before the first forward pass of the update too
    assert_sharded(policy.model.parameters(), number)
    updater.step(columns(batch))
    check_rollouts(policy, policy.full_copy(everywhere=True))
    for model in (policy.model, updater.reference.model):
        assert_sharded(model.parameters(), number)
    for name in ("exp_avg", "exp_avg_sq"):
        assert_sharded((state[name] for state in updater.optimizer.state.values()), number)

    # The reference was never trained: gathered, it is what was loaded. Each process writes its own for its vLLM.
    place = folder / f"reference-{rank}"
    updater.reference.full_copy(everywhere=True).save(place)
    plain.save(folder / f"plain-{rank}")
    for name in ("model.safetensors", "config.json"):
        assert (place / name).read_bytes() == (folder / f"plain-{rank}" / name).read_bytes()
    elsewhere = policy.full_copy().model
    assert {parameter.is_meta for parameter in elsewhere.parameters()} == {rank != 0}


def assert_sharded(tensors: Iterator[Tensor], number: int) -> None:
    """Check that half of `number` elements are here, except for odd rows, and that nothing is replicated."""
    found = list(tensors)
    assert sum(tensor.numel() for tensor in found) == number
    local = sum(tensor.to_local().numel() for tensor in found if isinstance(tensor, DTensor))
    assert local == pytest.approx(number / RANKS, rel=0.01)
    assert all(isinstance(tensor, DTensor) for tensor in found)


def check_rounded(batch: Sequence[Sample], rank: int) -> None:
    """In bfloat16, an update and the next after a checkpoint are those of whole policies in two processes, and a
    checkpoint of the one is one of the other."""
    # The gradients of equal micro-batches are equal, so these must be similar.
    single = [*CONFIG, "model.dtype=bfloat16", "actor.ppo_epochs=1"]
    configs = [one_by_one(load_config("toy", [*single, f"actor.strategy={name}"])) for name in ("fsdp2", "ddp")]

    def rounded(config: TrainConfig) -> Updater:
        return updater_of(Policy.load(replace(MODEL, dtype="bfloat16")), config, total_steps=10)

    found = []
    for config in configs:
        updater = rounded(config)
        stats = updater.step(columns(batch))
        policy = updater.policy.full_copy(everywhere=True)
        assert policy.dtype == policy.model.dtype == torch.bfloat16
        found.append((stats, full_state(updater.state_dict(), everywhere=True), policy.model.state_dict()))
    (stats, state, weights), (wanted, same_state, same_weights) = found
    assert stats["actor/grad_norm"] == pytest.approx(wanted["actor/grad_norm"], rel=1e-5)
    assert stats["actor/loss"] == pytest.approx(wanted["actor/loss"], rel=1e-5)
    if rank == 0:
        torch.testing.assert_close(state, same_state, rtol=1e-4, atol=1e-7)
    assert weights.keys() == same_weights.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, same_weights[name])

    states: list[Any] = [None, None]
    dist.all_gather_object(states, state)
    masters = []
    for config in configs:
        updater = rounded(config)
        updater.load_state_dict(copy.deepcopy(states[0]))  # an optimizer steps what it is given
        updater.step(columns(batch))
        masters.append(full_state(updater.weights.state_dict(), everywhere=True))
    torch.testing.assert_close(masters[0], masters[1], rtol=1e-4, atol=1e-7)
    moved = zip(masters[0], states[0]["master_weights"], strict=True)
    assert all(not torch.equal(master, before) for master, before in moved)


def check_mixed_dtypes(policy: Policy) -> None:
    policy.model.lm_head.weight.data = policy.model.lm_head.weight.data.double()
    with pytest.raises(ValueError, match=r"needs trained weights of one dtype; .* has torch\.float32, torch\.float64"):
        policy.shard(torch.device("cpu"))


def check_adapters(batch: Sequence[Sample], config: TrainConfig, rank: int, folder: Path) -> None:
    """LoRA: adapters learn, frozen weights are sharded all the same, and files are those of one process."""
    lora = {"lora_rank": 4, "lora_alpha": 8}
    check_updates(two_policies(**lora), batch, config, rank)

    def make() -> tuple[Policy, Updater]:
        policy = Policy.load(replace(MODEL, dtype="bfloat16", **lora))  # the adapters are in float32
        return policy, updater_of(policy, config, total_steps=10)

    with as_rank(0, 1):
        plain, alone = make()
        wanted = alone.step(columns(batch))
    policy, updater = make()
    found = updater.step(columns(batch))
    assert found["actor/loss"] == pytest.approx(wanted["actor/loss"], rel=1e-3, abs=1e-5)
    assert found["actor/kl"] == pytest.approx(wanted["actor/kl"], rel=0.05)
    assert_sharded(policy.model.parameters(), sum(parameter.numel() for parameter in plain.model.parameters()))
    assert {parameter.dtype for parameter in updater.weights.parameters} == {torch.float32}
    check_rollouts(policy, policy.full_copy(everywhere=True))

    place, same = folder / f"adapters-{rank}", folder / f"same-{rank}"
    policy.full_copy(everywhere=True).save(place)
    plain.load_weights(place)
    plain.save(same)
    for path in (path for path in same.rglob("*") if path.is_file()):
        assert (place / path.relative_to(same)).read_bytes() == path.read_bytes()

    states = [updater.state_dict()]
    dist.broadcast_object_list(states)  # of rank zero, the only one that has them
    resumed, continued = make()
    resumed.load_weights(place)
    continued.load_state_dict(copy.deepcopy(states[0]))
    assert continued.step(columns(batch))["actor/loss"] == updater.step(columns(batch))["actor/loss"]
    for one, other in zip(updater.weights.parameters, continued.weights.parameters, strict=True):
        assert torch.equal(full_state(one.detach(), everywhere=True), full_state(other.detach(), everywhere=True))


@pytest.mark.nightly
@needs_gloo
def test_resume_with_another_number_of_processes_and_strategy(
    alone: Path, small: MakeOverrides, small_config: MakeConfig, split: list[str], tmp_path: Path
) -> None:
    """Two processes that share the policy out until SIGTERM comes to the second of them, one for a step, and two that
    each hold the whole policy to the end."""
    run = tmp_path / "run"
    shorter = (*split, "data.test_files=[]", "data.val_files=[]", "trainer.save_freq=-1")
    stop = Stop(signal.SIGTERM, 2, "process", rank=1)
    status, _, err = Process(small(tmp_path, *shorter, FSDP2), RANKS, stop).finish()
    assert status != 0
    assert rows(run, "metrics")[-1]["step"] == 2
    assert "stopped by SIGTERM after step 2; the same command continues it" in err
    train(small_config(tmp_path, *shorter, FSDP2, "trainer.total_training_steps=3"))
    status, out, err = Process(small(tmp_path, *shorter), RANKS).finish()
    assert status == 0, err
    assert "continues after step 3" in out
    found, wanted = rows(run, "metrics"), rows(alone, "metrics")
    assert [row["step"] for row in found] == [1, 2, 3, 4, 5, 6]
    for row, same in zip(found, wanted, strict=True):
        assert row == pytest.approx(same, rel=1e-5, abs=1e-7)
