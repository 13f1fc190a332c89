"""The explorer of a run: new, of a checkpoint, or with what another run has counted."""

from pathlib import Path

import torch.distributed as dist

from outcome_rl.exploration.config import ExplorationConfig
from outcome_rl.exploration.explorer import Explorer, device_of_counts
from outcome_rl.grpo import distributed
from outcome_rl.grpo.types import ProblemSet


def new_explorer(
    exploration: ExplorationConfig, model_device: str, initial_exploration: str, train_set: ProblemSet
) -> Explorer:
    """Make the explorer of a run that begins, from the folder `trainer.initial_exploration` if that is set.

    Raises:
        FileNotFoundError, ValueError: there is no such folder, or it holds counts of none of these problems.
    """
    explorer = load_explorer(exploration, model_device, initial_exploration)
    known, first = explorer.solved, train_set.problems[0]
    if known and not any(problem.id in known for problem in train_set.problems):
        explorer.close()
        raise ValueError(
            f"trainer.initial_exploration={initial_exploration} must hold counts of questions in data.train_files; its "
            f"{len(known)} questions have ids such as {next(iter(known))!r}, and this run's like {first.id!r}, from "
            f"{train_set.id_source}. Set data.id_key, or leave it out"
        )
    explorer.id_source = explorer.id_source or train_set.id_source
    return explorer


def load_explorer(exploration: ExplorationConfig, model_device: str, folder: str | Path) -> Explorer:
    """Make an explorer that every process of this run shares, with the contents of a folder; "" is an empty one."""
    group = dist.group.WORLD if dist.is_initialized() else None
    device = device_of_counts(distributed.choose_device(model_device))
    if folder:
        explorer = Explorer.load(folder, exploration, device=device, process_group=group)
    else:
        explorer = Explorer(exploration, device=device, process_group=group)
    explorer.length_setting = "data.max_response_length"
    return explorer
