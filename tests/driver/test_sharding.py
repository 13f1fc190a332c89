"""A policy that processes share out learns, samples and saves what one of a single process does."""

import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from driver_runs import as_rank, scored_batch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from outcome_rl.driver import parallel
from outcome_rl.driver.batches import ScoredRollouts
from outcome_rl.driver.config import ModelConfig, SamplingConfig, TrainConfig
from outcome_rl.driver.config_loading import load_config
from outcome_rl.driver.policy import Policy
from outcome_rl.driver.rollout import TransformersEngine
from outcome_rl.driver.sharding import gathered
from outcome_rl.driver.update import Updater

needs_gloo = pytest.mark.skipif(not dist.is_gloo_available(), reason="this PyTorch is built without gloo")
RANKS = 2
CONFIG = [
    "model.device=cpu",
    "actor.strategy=fsdp2",
    "actor.kl_loss_coef=0.1",
    "actor.optim.lr=1e-2",
    "actor.ppo_epochs=2",
    "rollout.n=2",
]
MODEL = ModelConfig(path="embedded", device="cpu")


@pytest.mark.slow
@needs_gloo
def test_two_processes_do_together_what_each_does_alone(tmp_path: Path) -> None:
    untied = LlamaConfig(
        vocab_size=130,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        tie_word_embeddings=False,
        eos_token_id=2,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(untied).save_pretrained(tmp_path / "untied")
    Policy.load(MODEL).tokenizer.save_pretrained(tmp_path / "untied")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(run_rank, args=(port, tmp_path), nprocs=RANKS)


def run_rank(rank: int, port: int, folder: Path) -> None:
    torch.set_num_threads(1)
    config = load_config("embedded", CONFIG)
    with as_rank(rank, RANKS, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)), parallel.joined(config):
        policy = Policy.load(MODEL)
        with as_rank(0, 1):
            batch = scored_batch(policy)
        check_updates(two_policies(), batch, load_config("embedded", [*CONFIG, "actor.ppo_micro_batch_size_per_gpu=2"]), rank)


def two_policies(**settings: Any) -> list[Policy]:
    """Equal ones in float64, in which the order of sums is hardly seen."""
    policies = [Policy.load(replace(MODEL, **settings)) for _ in range(2)]
    for policy in policies:
        policy.model.double()
    return policies


def check_updates(policies: Sequence[Policy], batch: ScoredRollouts, config: TrainConfig, rank: int) -> None:
    """Updates together and alone: one gradient and one step."""
    found = []
    for policy, environment in zip(policies, (as_rank(rank, RANKS), as_rank(0, 1)), strict=True):
        with environment:
            updater = Updater(policy, config, total_steps=10)
            stats = updater.step(batch)
        found.append((updater.weights.parameters, stats._replace(reference_s=0, update_s=0)))
    (together, stats), (alone, wanted) = found
    for parameter, same in zip(together, alone, strict=True):
        torch.testing.assert_close(gathered(parameter.grad, everywhere=True), same.grad, rtol=1e-4, atol=1e-7)
        torch.testing.assert_close(gathered(parameter.data, everywhere=True), same.data, rtol=1e-4, atol=1e-7)
    for name, value in stats._asdict().items():
        assert value == pytest.approx(getattr(wanted, name), rel=1e-5, abs=1e-7), name
    assert wanted.grad_norm > config.actor.grad_clip
