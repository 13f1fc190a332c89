"""A run moves between TRL, verl and `outcome-rl train` with its counts: the folder `exploration/` of a checkpoint."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import verl_runs
from datasets import Dataset
from trl_runs import make_trainer, questions
from verl_runs import EXPLORE, QUESTIONS, Queue, put_group, together, verl_config

from outcome_rl import Explorer
from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.parts import build
from outcome_rl.grpo.run.checkpoint import latest_checkpoint
from outcome_rl.grpo.trainer import train
from outcome_rl.toy import policy_dir


def trl_run(folder: Path, steps: int, data: Dataset) -> Any:
    settings: dict[str, Any] = {"max_steps": steps, "save_strategy": "steps", "save_steps": 1, "rollout_func": None}
    return make_trainer(policy_dir(), folder, data=data, **settings)


def driver_config(folder: Path, exploration: Path, rows: Sequence[dict[str, Any]]) -> TrainConfig:
    """One step of `outcome-rl train` on some questions, four responses to each of them."""
    folder.mkdir(exist_ok=True)
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_config(
        "toy",
        [
            f"data.train_files={folder / 'problems.jsonl'}",
            "data.val_files=[]",
            "data.test_files=[]",
            f"data.train_batch_size={len(rows)}",
            "rollout.n=4",
            "trainer.total_training_steps=1",
            f"trainer.initial_exploration={exploration}",
            f"trainer.default_local_dir={folder}",
            "trainer.experiment_name=run",
        ],
    )


def drive(config: TrainConfig) -> Path:
    """Train to the end; return the exploration folder of the last checkpoint."""
    train(config)
    return latest_checkpoint(config.run_dir / "checkpoints") / "exploration"


def continued_by_driver(config: TrainConfig, before: Explorer) -> tuple[Path, Explorer]:
    """Check that the trainer begins with the state of another stack; train, and return the new state and its folder."""
    parts = build(config)
    assert_equal(parts.explorer, before)
    parts.close()
    folder = drive(config)
    return folder, Explorer.load(folder)


def put(source: Path, target: Path) -> None:
    shutil.rmtree(target)
    shutil.copytree(source, target)


def assert_equal(one: Explorer, other: Explorer) -> None:
    assert all(map(torch.equal, one.counts.items(), other.counts.items()))
    assert one.solved == other.solved
    assert [one.seen(i) for i in one.solved] == [other.seen(i) for i in one.solved]


def num_responses(explorer: Explorer) -> int:
    return int(explorer.counts.items().counts.sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "id_source"), [({}, "the column 'id'"), ({"data_source": ["toy"] * 6}, "id with the data source")]
)
def test_counts_move_from_trl_to_the_driver_and_back(
    columns: dict[str, list[str]], id_source: str, tmp_path: Path
) -> None:
    data = questions(**columns)
    trl = trl_run(tmp_path / "trl", 1, data)
    trl.train()
    of_trl = tmp_path / "trl" / "checkpoint-1" / "exploration"

    config = driver_config(tmp_path / "driver", of_trl, data.to_list())
    of_driver, moved = continued_by_driver(config, trl.explorer)
    assert num_responses(moved) == num_responses(trl.explorer) + 6 * 4

    put(of_driver, of_trl)
    resumed = trl_run(tmp_path / "trl", 2, data)
    resumed.train(resume_from_checkpoint=str(of_trl.parent))
    assert num_responses(resumed.explorer) == num_responses(moved) + 12
    assert resumed.explorer.id_source == id_source
    assert {i for i, solved in moved.solved.items() if solved} <= {i for i, s in resumed.explorer.solved.items() if s}
    for question_id in moved.solved:
        now = dict(resumed.explorer.seen(question_id))
        assert all(now[answer] >= count for answer, count in moved.seen(question_id))


def test_counts_move_from_verl_to_the_driver_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, settings = Queue().install(monkeypatch), (EXPLORE + "bonus=ucb", EXPLORE + "id_key=extra_info.index")
    verl = verl_runs.make_trainer(verl_config(tmp_path / "verl", *settings))
    groups = put_group(queue, verl, "a", "q1", ["27", "5"]), put_group(queue, verl, "b", "q2", ["3", "1"])
    verl._compute_advantage(together(*groups), {})
    verl.global_steps = 1
    verl._save_checkpoint()
    of_verl = tmp_path / "verl" / "global_step_1" / "exploration"

    rows = [
        {
            "prompt": prompt,
            "reward_model": {"ground_truth": gold},
            "data_source": "dialect",
            "extra_info": {"index": index},
        }
        for index, (prompt, gold) in QUESTIONS.items()
    ]
    config = driver_config(tmp_path / "driver", of_verl, rows)
    of_driver, moved = continued_by_driver(config, verl._outcome_explorer)
    assert num_responses(moved) == 4 + len(rows) * 4
    assert moved.id_source == "extra_info.index with the data source"

    put(of_driver, of_verl)
    assert_equal(verl_runs.make_trainer(verl_config(tmp_path / "verl", *settings))._outcome_explorer, moved)
