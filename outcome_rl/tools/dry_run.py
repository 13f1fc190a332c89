"""Steps of a run, and obstacles to it here, for `--dry-run`, without loading weights."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.data.problems import BatchOrder, load_problems
from outcome_rl.grpo.data.prompts import tokenize
from outcome_rl.grpo.data.reward import RewardFunction
from outcome_rl.grpo.model.policy import model_path
from outcome_rl.grpo.rollout.engine import check_engine
from outcome_rl.grpo.run.checkpoint import find_run
from outcome_rl.grpo.run.open_explorer import new_explorer
from outcome_rl.grpo.run.tracking import check_loggers
from outcome_rl.rows import SUFFIXES
from outcome_rl.tools.memory import estimate_memory, memory_lines


def steps_per_epoch(config: TrainConfig) -> int | None:
    """Return the updates of an epoch, or None if counting the problems would need a download.

    Count the prompts that will be dropped because they are too long.

    Raises:
        FileNotFoundError, ValueError: bad data, or fewer problems than a batch.
    """
    if not all(_is_local(source) for source in config.data.train_files):
        return None
    problems = load_problems(config.data.train_files, config.data, needs_answers=config.needs_answers).problems
    return BatchOrder(len(problems), config.data.train_batch_size, shuffle=False, seed=0).steps_per_epoch


def refusals(config: TrainConfig) -> Iterator[str]:
    """Yield why the run would not start here: devices, packages, folder, data, model or counts."""
    checks: tuple[Callable[[], object], ...] = (
        lambda: distributed.check(config),
        lambda: distributed.choose_device(config.model.device),
        lambda: check_engine(config),
        lambda: check_loggers(config.trainer.logger),
        lambda: config.reward.function and RewardFunction(config.reward.function),
        lambda: find_run(config),
        lambda: _check_writable(config.run_dir),
        lambda: steps_per_epoch(config),
        lambda: _check_prompts(config),
        lambda: _check_exploration(config),
    )
    for check in checks:
        try:
            check()
        except (OSError, ValueError) as error:
            yield str(error)


def _check_writable(folder: Path) -> None:
    """Check that the folder can be made, without making it."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise PermissionError(f"trainer.default_local_dir: {folder} cannot be written, because {there} cannot")


def _check_prompts(config: TrainConfig) -> None:
    """Tokenize the problems that need no download."""
    from transformers import AutoTokenizer

    path, code = model_path(config.model), config.model.trust_remote_code
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=code)
    except (OSError, ValueError) as error:
        raise ValueError(f"model.path={config.model.path!r} cannot be loaded: {error}") from error
    data = config.data
    for sources in (data.train_files, *([source] for source in (*data.val_files, *data.test_files))):
        if all(map(_is_local, sources)):
            training = sources is data.train_files
            problems = load_problems(sources, data, training=training, needs_answers=config.needs_answers)
            kept = len(tokenize(problems, tokenizer, data).problems)
            if training and kept < len(problems.problems):
                BatchOrder(kept, data.train_batch_size, shuffle=False, seed=0)


def _check_exploration(config: TrainConfig) -> None:
    """Load the counts from which a run that begins would go on, where its questions need no download."""
    data = config.data
    if config.trainer.initial_exploration and find_run(config)[0] is None and all(map(_is_local, data.train_files)):
        problems = load_problems(data.train_files, data, needs_answers=config.needs_answers)
        new_explorer(config, problems).close()


def describe(config: TrainConfig) -> Iterator[str]:
    """Yield the lines that `outcome-rl train --dry-run` prints after the settings."""
    try:
        yield from memory_lines(estimate_memory(config), config)
    except (OSError, ValueError) as error:
        reason = str(error).split("\n")[0]
        yield f"Memory: unknown, because the configuration of model.path={config.model.path!r} cannot be read: {reason}"
    try:
        steps = steps_per_epoch(config)
    except (OSError, ValueError):
        return  # `refusals` gives the reason
    if steps is None:
        yield f"Steps: unknown until {', '.join(config.data.train_files)} is loaded"
    else:
        total = config.trainer.total_training_steps or config.trainer.total_epochs * steps
        yield f"Steps: {steps} per epoch, {total} in all"


def _is_local(source: str) -> bool:
    name = source.partition("@")[0].partition(":")[0]
    # Without a split it is no data set of the hub: reading it says so.
    return name == "toy" or source.endswith(SUFFIXES) or Path(name).is_dir() or "@" not in source
