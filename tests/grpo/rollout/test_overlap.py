"""Sampling ahead: the order of the work, the weights that sample, and runs that stop and continue.

The engine of these tests samples with a copy of the weights at `start`, as an engine with processes of its own does.
"""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from copying_engine import NAME, CopyingEngine
from grpo_runs import MakeConfig, assert_same_run, rows

from outcome_rl import Explorer
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.parts import build
from outcome_rl.grpo.rollout.transformers_engine import TransformersEngine
from outcome_rl.grpo.run.run_lock import Interrupted
from outcome_rl.grpo.trainer import Trainer, train
from outcome_rl.grpo.types import EngineDied

OVERLAP = (f"rollout.engine={NAME}", "rollout.importance_cap=2", "rollout.overlap=1")


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[CopyingEngine]:
    """Every engine that a trainer opens."""
    opened: list[CopyingEngine] = []
    monkeypatch.setattr(CopyingEngine, "opened", opened)
    return opened


@pytest.fixture(scope="module")
def overlapped(tmp_path_factory: pytest.TempPathFactory, small_config: MakeConfig) -> Path:
    """The folder of a whole run."""
    config = small_config(tmp_path_factory.mktemp("whole"), *OVERLAP)
    train(config)
    return config.run_dir


def test_the_next_batch_is_begun_before_the_update_and_fetched_after_it(
    small_config: MakeConfig, tmp_path: Path, engines: list[CopyingEngine]
) -> None:
    one = Trainer(build(small_config(tmp_path, *OVERLAP, "trainer.total_training_steps=3")))
    try:
        seen = [one.train_step()[0] for _ in range(3)]
    finally:
        one.parts.close()
    kinds = [kind for kind, _ in engines[0].calls]
    assert kinds == ["generate", "start", "new weights", "fetch", "start", "new weights", "fetch", "new weights"]
    assert all(collected.num_batches == 1 for collected in seen)


def test_samples_are_those_of_the_weights_before_the_last_update(
    small_config: MakeConfig, tmp_path: Path, engines: list[CopyingEngine]
) -> None:
    one = Trainer(build(small_config(tmp_path, *OVERLAP, "actor.optim.lr=0.01")))  # each update is seen in the samples
    try:
        first, _ = one.train_step()  # by the initial weights, and so is the second
        older = one.parts.policy.frozen_copy()
        second, _ = one.train_step()
        newer = one.parts.policy.frozen_copy()
        third, _ = one.train_step()
        request = one.parts.collector._request
        for collected, policy, number in ((third, older, 3), (second, Policy.load(one.parts.config.model), 2)):
            wanted = TransformersEngine(policy, 64).generate(*request(number))
            assert [sample.rollout.token_ids for sample in collected.samples] == [one.token_ids for one in wanted]
        newest = TransformersEngine(newer, 64).generate(*request(3))
        assert [sample.rollout.token_ids for sample in third.samples] != [one.token_ids for one in newest]
        assert first.samples != second.samples
    finally:
        one.parts.close()


def test_counts_are_in_order_and_whole(overlapped: Path, small_config: MakeConfig, tmp_path: Path) -> None:
    """Each step counts one batch, whatever was sampled ahead."""
    config = small_config(tmp_path)
    n = config.data.train_batch_size * config.rollout.n
    newest = sorted((overlapped / "checkpoints").glob("global_step_*"))[-1]
    steps = len(rows(overlapped, "metrics"))
    assert int(Explorer.load(newest / "exploration").counts.items().counts.sum()) == n * steps
    assert not (newest / "ahead.json").exists()  # nothing comes after the last step


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_run_that_stops_and_continues_ends_with_the_same_bits(
    steps: int, overlapped: Path, small_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(tmp_path, *OVERLAP)
    done, step = [], Trainer.train_step

    def signalled(self: Trainer) -> Any:
        done.append(step(self))
        if len(done) == steps:
            os.kill(os.getpid(), signal.SIGTERM)
        return done[-1]

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", signalled)
        with pytest.raises(Interrupted, match=f"after step {steps}"):
            train(config)
    train(config)
    assert_same_run(config.run_dir, overlapped)


@pytest.mark.parametrize("life", [1, 2, 3, 5])
def test_an_engine_that_dies_loses_no_count(
    life: int, overlapped: Path, small_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(tmp_path, *OVERLAP)
    monkeypatch.setattr(CopyingEngine, "lives", iter([life]))
    with pytest.raises(EngineDied):
        train(config)
    train(config)
    assert_same_run(config.run_dir, overlapped)
