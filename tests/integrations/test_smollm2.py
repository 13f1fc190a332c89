"""TRL samples from a pretrained language model and trains it with a bonus."""

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM
from trl import GRPOConfig
from trl_runs import is_right

from experiments.smollm2.model import SHORT_POLICY
from experiments.smollm2.task import problems
from outcome_rl import ExplorationConfig
from outcome_rl.integrations.trl import OutcomeGRPOTrainer

N = 4

pytestmark = pytest.mark.skipif(not SHORT_POLICY.is_dir(), reason=f"make test-smollm2 makes {SHORT_POLICY}")


def test_a_pretrained_model_explores_in_trl(tmp_path: Path) -> None:
    rows = problems("train", 2)
    data = Dataset.from_list([row | {"prompt": [{"role": "user", "content": row["problem"]}]} for row in rows])
    before = AutoModelForCausalLM.from_pretrained(SHORT_POLICY, dtype=torch.float32)
    trainer = OutcomeGRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(SHORT_POLICY, dtype=torch.float32),
        reward_funcs=is_right,
        args=GRPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=2 * N,
            num_generations=N,
            max_completion_length=24,
            max_steps=1,
            learning_rate=1e-4,
            lr_scheduler_type="constant",
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            report_to=[],
            save_strategy="no",  # 1.6 GB
        ),
        train_dataset=data,
        exploration=ExplorationConfig(bonus="batch", coef=1.0, answer_mask_mode="none"),
    )
    trainer.train()
    seen = [trainer.explorer.seen(row["id"]) for row in rows]
    assert [sum(count for _, count in answers) for answers in seen] == [N, N]  # after ten warm steps all box an answer
    assert sum(len(answers) for answers in seen) > 2
    state = trainer.model.state_dict()
    assert all(torch.isfinite(weight).all() for weight in state.values())
    assert any(not torch.equal(state[name], weight) for name, weight in before.state_dict().items())
