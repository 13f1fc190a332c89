"""Steps of a run, and obstacles to it here, for `--dry-run`, without loading weights."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from outcome_rl.files.rows import SUFFIXES
from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.data.problems import BatchOrder, load_problems, split_slice
from outcome_rl.grpo.data.prompts import tokenize
from outcome_rl.grpo.data.reward import RewardFunction
from outcome_rl.grpo.model.dtype import with_dtype
from outcome_rl.grpo.model.lora import add_adapters
from outcome_rl.grpo.model.policy import check_context, model_path
from outcome_rl.grpo.parts import check_length, identity_of, outcome_rule
from outcome_rl.grpo.rollout.engine import check_engine
from outcome_rl.grpo.run.checkpoint import check_same_run, find_run, read_state
from outcome_rl.grpo.run.evaluation import EvaluationPlan
from outcome_rl.grpo.run.open_explorer import new_explorer
from outcome_rl.grpo.run.tracking import check_loggers
from outcome_rl.grpo.types import ProblemSet


def steps_per_epoch(config: TrainConfig) -> int | None:
    """Return the updates of an epoch, or None if counting the problems would need a download.

    Raises:
        FileNotFoundError, ValueError: bad data, or fewer problems than a batch.
    """
    problems = _local_problems(config)
    if problems is None:
        return None
    if config.data.overlong_prompts == "filter":
        problems = tokenize(problems, _tokenizer(config), config.data)
    return BatchOrder(len(problems.problems), config.data.train_batch_size, seed=0).steps_per_epoch


def _local_problems(config: TrainConfig) -> ProblemSet | None:
    """Return the training problems, or None if reading them would need a download."""
    if not all(map(_is_local, config.data.train_files)):
        return None
    return load_problems(config.data.train_files, config.data, needs_answers=config.needs_answers)


def refusals(config: TrainConfig) -> Iterator[str]:
    """Yield why the run would not start here: devices, packages, folder, data, model or counts."""
    checks: tuple[Callable[[], object], ...] = (
        lambda: distributed.check(config.model.device, config.data.train_batch_size),
        lambda: check_engine(config),
        lambda: check_loggers(config.trainer.logger),
        lambda: config.reward.function and RewardFunction(config.reward),
        lambda: find_run(config),
        lambda: _check_writable(config.run_dir),
        lambda: steps_per_epoch(config),
        lambda: _check_model(config),
        lambda: _check_data(config),
        lambda: _check_exploration(config),
    )
    causes: set[str] = set()
    for check in checks:
        try:
            check()
        except (OSError, ValueError) as error:
            cause = str(error.__cause__ or error)
            if cause not in causes:  # a model that cannot be reached has no tokenizer either
                yield str(error)
            causes.add(cause)


def _check_writable(folder: Path) -> None:
    """Check that the folder can be made, without making it."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise PermissionError(f"trainer.default_local_dir: {folder} cannot be written, because {there} cannot")


def _check_model(config: TrainConfig) -> None:
    """Build the model without its weights, with its adapters, and check that the files of local weights are whole."""
    from transformers import AutoConfig, AutoModelForCausalLM

    path, trusted = model_path(config.model), config.model.trust_remote_code
    folder = Path(path)
    try:
        shape = AutoConfig.from_pretrained(path, trust_remote_code=trusted)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(shape, trust_remote_code=trusted)
            if config.model.lora_rank:
                add_adapters(model, config.model)
        if folder.is_dir():
            weights = [*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]
            if not weights:
                raise FileNotFoundError(f"{folder} holds no weights, no *.safetensors")
            for file in weights:
                if file.suffix == ".safetensors":
                    with safe_open(file, framework="pt"):  # reads the header, and compares it with the size
                        pass
    except (OSError, ValueError, SafetensorError) as error:
        raise ValueError(f"model.path={config.model.path!r} cannot be trained: {error}") from error


def _check_data(config: TrainConfig) -> None:
    """Tokenize the problems that need no download; check that a run in the folder has these data and settings."""
    from transformers import AutoConfig

    tokenizer, data = _tokenizer(config), config.data
    problems = _local_problems(config)
    val_files, test_files = ([*filter(_is_local, sources)] for sources in (data.val_files, data.test_files))
    local = replace(data, val_files=val_files, test_files=test_files)
    train_set = None if problems is None else tokenize(problems, tokenizer, data)
    plan = EvaluationPlan(local, config.trainer.test_freq, tokenizer, needs_answers=config.needs_answers)
    if train_set is None:
        return
    shape = AutoConfig.from_pretrained(model_path(config.model), trust_remote_code=config.model.trust_remote_code)
    check_context(shape, plan.longest_prompt(train_set), data.max_response_length)
    checkpoint, _ = find_run(config)
    if local == data and checkpoint is not None:
        order = BatchOrder(len(train_set.problems), data.train_batch_size, seed=0)
        saved = read_state(checkpoint)
        with config.exploration.matcher() as matcher:
            config = replace(config, model=with_dtype(config.model, saved["identity"].get("model.dtype")))
            rule = outcome_rule(matcher, saved)
            check_same_run(saved["identity"], identity_of(config, train_set, plan, rule), checkpoint)
        check_length(saved["run"]["step"], config.total_steps(order.steps_per_epoch), checkpoint)


def _tokenizer(config: TrainConfig) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model_path(config.model), trust_remote_code=config.model.trust_remote_code)
    except (OSError, ValueError) as error:
        raise ValueError(f"model.path={config.model.path!r} cannot be loaded: {error}") from error


def _check_exploration(config: TrainConfig) -> None:
    """Load the counts from which a run that begins would go on, where its questions need no download."""
    folder = config.trainer.initial_exploration
    if folder and find_run(config)[0] is None and (problems := _local_problems(config)) is not None:
        new_explorer(config.exploration, config.model.device, folder, problems).close()


def describe(config: TrainConfig) -> Iterator[str]:
    """Yield the lines that `outcome-rl train --dry-run` prints after the settings."""
    try:
        steps = steps_per_epoch(config)
    except (OSError, ValueError):
        return  # `refusals` gives the reason
    if steps is None:
        yield f"Steps: unknown until {', '.join(config.data.train_files)} is loaded"
    else:
        yield f"Steps: {steps} per epoch, {config.total_steps(steps)} in all"


def _is_local(source: str) -> bool:
    source, _ = split_slice(source)
    name = source.partition("@")[0].partition(":")[0]
    # Without a split it is no data set of the hub: reading it says so.
    return name == "toy" or source.endswith(SUFFIXES) or Path(name).is_dir() or "@" not in source
