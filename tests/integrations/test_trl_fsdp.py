"""The plug-in under FSDP2, in two processes on the CPU."""

from pathlib import Path

import pytest
import torch
from trl_runs import ended, make_trainer, save_policy
from two_ranks import run_on_two_ranks

from outcome_rl import ExplorationConfig

PROGRAM = Path(__file__).parents[1] / "helpers" / "trl_fsdp.py"
EXPLORATIONS = (
    ExplorationConfig(bonus="0.2*ucb_con + 0.1*batch"),
    ExplorationConfig(adv_estimator="maxrl", answer_mask_mode="all"),
)


@pytest.mark.slow
def test_fsdp2_trains_and_resumes_like_one_process(tmp_path: Path) -> None:
    policy = save_policy(tmp_path / "policy")
    alone = []
    for exploration in EXPLORATIONS:
        trainer = make_trainer(policy, tmp_path, exploration=exploration, optim="sgd", learning_rate=0.1)
        trainer.train()
        alone.append(ended(trainer))
    torch.save(alone, tmp_path / "1-0.pt")
    (default, out_of_the_loss), *ends = run_on_two_ranks(str(PROGRAM), tmp_path, timeout=500)
    for end in ends:
        assert "fused_loss" in end["refused"]
        whole, resumed, _ = end["runs"]
        assert whole["is_sharded"]
        assert resumed["losses"] == whole["losses"]
        for run, expected in zip(end["runs"], (default, default, out_of_the_loss), strict=True):
            assert run["losses"] == pytest.approx(expected["losses"], rel=1e-4, abs=1e-6)
            assert run["solved"] == expected["solved"]
            assert all(map(torch.equal, run["counts"], expected["counts"]))
