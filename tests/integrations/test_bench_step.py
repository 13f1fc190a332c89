"""TRL as a baseline of the benchmark of a whole step: the same loss and gradients on the same responses."""

from pathlib import Path

from bench.step import compare
from bench.step_baselines import PARTS, TrlLoop, installed_baselines
from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.parts import open_parts
from outcome_rl.grpo.plan import plan
from outcome_rl.grpo.trainer import Trainer

SMALL = [
    "data.train_batch_size=4",
    "data.train_files=toy:train[:8]",
    "data.val_files=toy:validation[:2]",
    "data.test_files=toy:test[:2]",
    "rollout.n=4",
    "actor.ppo_max_token_len_per_gpu=256",
    "actor.optim.lr=1e-12",
    "model.device=cpu",
]


def test_trl_learns_the_same_and_makes_whole_steps(tmp_path: Path) -> None:
    assert TrlLoop in installed_baselines()
    trainer = Trainer(open_parts(plan(load_config("toy", [*SMALL, f"trainer.default_local_dir={tmp_path}"]))))
    try:
        samples = trainer.train_step()[0].batch
        baseline = TrlLoop(trainer)
        compare(trainer, [baseline], samples)
        seconds, tokens = baseline.step()
    finally:
        trainer.parts.close()
    assert set(seconds) == set(PARTS)
    assert 4 * 4 < tokens <= 4 * 4 * 16
