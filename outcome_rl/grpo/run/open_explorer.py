"""The explorer of a run: new, of a checkpoint, or with what another run has counted."""

from pathlib import Path

import torch.distributed as dist

from outcome_rl.exploration.explorer import Explorer, device_of_counts
from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.types import ProblemSet


def new_explorer(config: TrainConfig, train_set: ProblemSet) -> Explorer:
    """Make the explorer of a run that begins, from `trainer.initial_exploration` if that is set.

    Raises:
        FileNotFoundError, ValueError: there is no such folder, or it holds counts of none of these problems.
    """
    folder = config.trainer.initial_exploration
    explorer = load_explorer(config, folder)
    known, first = explorer.solved, train_set.problems[0]
    if known and not any(problem.id in known for problem in train_set.problems):
        explorer.close()
        raise ValueError(
            f"trainer.initial_exploration={folder} must hold counts of questions in data.train_files; its {len(known)} "
            f"questions have ids such as {next(iter(known))!r}, and this run's like {first.id!r}, from "
            f"{train_set.id_source}. Set data.id_key, or leave it out"
        )
    explorer.id_source = explorer.id_source or train_set.id_source
    return explorer


def load_explorer(config: TrainConfig, folder: str | Path = "") -> Explorer:
    """Make an explorer that every process of this run shares, with the contents of a folder or empty."""
    group = dist.group.WORLD if dist.is_initialized() else None
    device = device_of_counts(distributed.choose_device(config.model.device))
    if folder:
        explorer = Explorer.load(folder, config.exploration, device=device, process_group=group)
    else:
        explorer = Explorer(config.exploration, device=device, process_group=group)
    explorer.length_setting = "data.max_response_length"
    return explorer
