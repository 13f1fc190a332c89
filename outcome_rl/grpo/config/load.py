"""Settings from YAML files and `key=value` overrides, checked before anything else starts.

An unknown key is an error that names the nearest valid one. All text is literal: `${name}` refers to nothing, for a
prompt may well hold LaTeX.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from outcome_rl.grpo.config.presets import find_config
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.run.tracking import LOGGERS
from outcome_rl_kernels.advantages.api import parse_bonus
from outcome_rl_kernels.loss.reference import LossSettings


def load_config(source: str | Path | None = None, overrides: Sequence[str] = ()) -> TrainConfig:
    """The defaults, then a YAML file or preset, then `key=value` overrides.

    Args:
        source: path of a YAML file, or the name of a preset in this package (`preset_names`). Its key `base` names
            another one, a preset or a path from its folder, that it is a change of.
        overrides: such as `rollout.n=16` or `data.train_files=[a.jsonl,b.jsonl]`; text is taken as it stands, so that
            a prompt template may hold braces and colons.

    Raises:
        FileNotFoundError: no such file or preset.
        ValueError: an unknown key (with the nearest valid one), a value of the wrong type, or settings that contradict
            each other.
    """
    schema = OmegaConf.structured(TrainConfig)
    known = dict(leaves(asdict(TrainConfig())))
    layers = []
    if source is not None:
        layers += _with_bases(find_config(str(source), Path()))
    for override in overrides:
        layers.append((f"override {override!r}", _parse_override(override, known)))
    for origin, layer in layers:
        _check_keys(layer, known, origin)
        for key, value in leaves(layer):
            if key in known:
                schema = _merged(schema, key, value, known[key], origin)
    config: TrainConfig = OmegaConf.to_object(schema)
    _check(config)
    return config


def to_yaml(config: TrainConfig) -> str:
    """The resolved configuration, readable by `load_config`."""
    return str(yaml.safe_dump(asdict(config), sort_keys=False, allow_unicode=True))


def _with_bases(path: Path, above: tuple[Path, ...] = ()) -> list[tuple[str, dict[str, Any]]]:
    """A file after the one that its key `base` names, and so on."""
    if path in above:
        raise ValueError(f"{path}: base leads back to the file itself, through {', '.join(map(str, above))}")
    content = _read_yaml(path)
    base = content.pop("base", None)
    if base is None:
        return [(str(path), content)]
    if not isinstance(base, str):
        raise ValueError(f"{path}: base must be a preset or a file; got {base!r}")
    return [*_with_bases(find_config(base, path.parent), (*above, path)), (str(path), content)]


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML in which a key may stand once, and a date is text."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} occurs twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(content, dict | None):
        raise ValueError(f"{path}: expected sections such as 'model:' and 'data:'; got a {type(content).__name__}")
    return content or {}


def _parse_override(override: str, known: Mapping[str, Any]) -> dict[str, Any]:
    key, equals, text = override.partition("=")
    if not equals:
        raise ValueError(f"override {override!r} must have the form key=value, such as rollout.n=16")
    if isinstance(known.get(key), str):
        return {key: text}
    try:
        return {key: yaml.load(text, _Loader)}
    except yaml.YAMLError as error:
        raise ValueError(f"override {override!r}: the value is not valid YAML: {error}") from error


def _merged(schema: DictConfig, key: str, value: Any, default: Any, origin: str) -> Any:
    if isinstance(default, list) and isinstance(value, str | int | float):
        value = [value]  # data.train_files=a.jsonl
    elif isinstance(default, str) and isinstance(value, bool):
        value = str(value).lower()  # apply_chat_template: true
    layer = OmegaConf.create()
    OmegaConf.update(layer, key, _literal(value))
    try:
        return OmegaConf.merge(schema, layer)
    except OmegaConfBaseException as error:
        raise ValueError(f"{origin}: {key}: {str(error).splitlines()[0]}") from error


def _literal(value: Any) -> Any:
    """The value as OmegaConf writes it where `${` is no reference to another setting."""
    if isinstance(value, list):
        return [_literal(item) for item in value]
    if isinstance(value, str):
        return re.sub(r"(\\*)\$\{", lambda found: found[1] * 2 + r"\${", value)
    return value


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of nested sections under their dotted keys."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _check_keys(content: Any, known: Mapping[str, Any], origin: str) -> None:
    sections = {key.rpartition(".")[0] for key in known}
    for key, value in leaves(content):
        if key in known or (key in sections and value is None):
            continue
        # A right name in the wrong section is nearer than a similar name in the right one.
        leaf = key.rpartition(".")[2]
        same_leaf = [name for name in known if name.rpartition(".")[2] == leaf]
        nearest = same_leaf or get_close_matches(key, known, n=1, cutoff=0.5)
        hint = (
            f"; did you mean {nearest[0]!r}?"
            if nearest
            else f"; sections are {', '.join(sorted(asdict(TrainConfig())))}"
        )
        raise ValueError(f"{origin}: unknown config key {key!r}{hint}")


# Every number is finite besides; a setting that is null or an empty list needs no check.
_RANGES: tuple[tuple[str, Callable[[float], bool], tuple[str, ...]], ...] = (
    (
        "> 0",
        lambda number: number > 0,
        (
            "model.lora_alpha",
            "data.train_batch_size",
            "data.max_prompt_length",
            "data.max_response_length",
            "rollout.n",
            "rollout.temperature",
            "rollout.micro_batch_size",
            "rollout.importance_cap",
            "rollout.val_kwargs.n",
            "rollout.val_kwargs.temperature",
            "actor.ppo_mini_batch_size",
            "actor.ppo_epochs",
            "actor.ppo_micro_batch_size_per_gpu",
            "actor.ppo_max_token_len_per_gpu",
            "actor.grad_clip",
            "actor.optim.lr",
            "algorithm.filter_groups.max_num_gen_batches",
            "outcomes.workers",
            "outcomes.timeout_s",
            "trainer.total_training_steps",
            "trainer.total_epochs",
            "trainer.max_ckpt_to_keep",
            "trainer.num_threads",
        ),
    ),
    (
        ">= 0",
        lambda number: number >= 0,
        (
            "model.lora_rank",
            "actor.kl_loss_coef",
            "actor.optim.lr_warmup_steps",
            "actor.optim.weight_decay",
            "exploration.coef",
            "trainer.max_skipped_updates",
            "trainer.log_generations",
        ),
    ),
    (
        ">= 1, or -1",
        lambda number: number >= 1 or number == -1,
        (
            "data.train_max_samples",
            "data.val_max_samples",
            "rollout.top_k",
            "rollout.val_kwargs.top_k",
            "trainer.test_freq",
            "trainer.save_freq",
        ),
    ),
    (
        "in (0, 1]",
        lambda number: 0 < number <= 1,
        ("rollout.top_p", "rollout.val_kwargs.top_p", "rollout.gpu_memory_utilization"),
    ),
    ("in [0, 1)", lambda number: 0 <= number < 1, ("actor.optim.betas",)),
)
# Arguments of the loss, which checks them itself, and where they come from.
_LOSS = {
    "answer_mask_mode": "exploration.answer_mask_mode",
    "temperature": "rollout.temperature",
    "beta": "actor.kl_loss_coef",
    "kl_penalty": "actor.kl_loss_type",
    "epsilon_low": "actor.clip_ratio_low",
    "epsilon_high": "actor.clip_ratio_high",
    "delta": "actor.clip_ratio_c",
    "loss_agg": "actor.loss_agg_mode",
    "entropy_coef": "actor.entropy_coeff",
}


# What is not built for a sharded policy.
_WITHOUT_FSDP2 = ("model.lora_rank", "actor.use_torch_compile", "actor.ref_param_offload")


def _check(config: TrainConfig) -> None:
    """What types cannot say: required fields, ranges, and settings that exclude each other."""
    required = {
        "model.path": "a model folder or hub name, or 'toy'",
        "data.train_files": "a .jsonl or .parquet file, or 'toy:train'",
        "trainer.experiment_name": "a name for the run's folder",
    }
    values = dict(leaves(asdict(config)))
    for key, wanted in required.items():
        if not values[key]:
            raise ValueError(f"{key} is not set: give {wanted}, or start from --config toy")
    for words, holds, keys in _RANGES:
        for key in keys:
            if not all(holds(number) for number in _numbers(values[key])):
                raise ValueError(f"{key} must be {words}; got {values[key]}")
    for key, value in values.items():
        if not all(math.isfinite(number) for number in _numbers(value)):
            raise ValueError(f"{key} must be finite; got {value}")
    try:
        LossSettings(**{name: values[key] for name, key in _LOSS.items()})
    except ValueError as error:
        names = re.compile(rf"\b({'|'.join(_LOSS)})\b")
        raise ValueError(names.sub(lambda found: _LOSS[found[0]], str(error))) from error
    for name in config.trainer.logger:
        if name not in LOGGERS:
            raise ValueError(f"trainer.logger must name some of {', '.join(LOGGERS)}; got {name!r}")
    if "/" in config.trainer.experiment_name or config.trainer.experiment_name in (".", ".."):
        raise ValueError(f"trainer.experiment_name must be a folder name; got {config.trainer.experiment_name!r}")
    if "{problem}" not in config.data.prompt_template:
        raise ValueError(f"data.prompt_template must contain {{problem}}; got {config.data.prompt_template!r}")
    try:
        methods = parse_bonus(config.exploration.bonus)
    except ValueError as error:
        raise ValueError(f"exploration.{error}") from error
    if len(config.exploration.coef) not in (1, len(methods)):
        raise ValueError(
            f"exploration.coef must hold one number or {len(methods)}, one for each of {config.exploration.bonus!r}; "
            f"got {config.exploration.coef}"
        )
    actor, data = config.actor, config.data
    if actor.ppo_mini_batch_size is not None and actor.ppo_mini_batch_size > data.train_batch_size:
        raise ValueError(
            f"actor.ppo_mini_batch_size={actor.ppo_mini_batch_size} questions must be at most data.train_batch_size="
            f"{data.train_batch_size}; null takes all of them"
        )
    longest = data.max_prompt_length + data.max_response_length
    if actor.use_dynamic_bsz and actor.ppo_max_token_len_per_gpu < longest:
        raise ValueError(
            f"actor.ppo_max_token_len_per_gpu={actor.ppo_max_token_len_per_gpu} must hold the longest sequence, "
            f"data.max_prompt_length + data.max_response_length = {longest} tokens"
        )
    if actor.strategy == "fsdp2":
        for key in _WITHOUT_FSDP2:
            if values[key]:
                raise ValueError(
                    f"{key}={values[key]} does not work with actor.strategy=fsdp2; leave it out, or set "
                    "actor.strategy=ddp"
                )
    if config.rollout.importance_cap is not None and config.rollout.engine == "transformers":
        raise ValueError(
            "rollout.importance_cap corrects for an engine with arithmetic of its own; the transformers engine samples "
            "with the trained weights themselves. Set rollout.engine=vllm or leave the cap out"
        )
    if config.rollout.n == 1:
        why = (
            "the leave-one-out mean of ucb_mean needs other samples"
            if "ucb_mean" in methods
            else ("the advantage of a group of one is always 0")
        )
        raise ValueError(f"rollout.n must be at least 2, got 1: {why}")


def _numbers(value: Any) -> list[float]:
    """The numbers of a setting: one, several, or none."""
    items = value if isinstance(value, list | tuple) else [value]
    return [item for item in items if isinstance(item, int | float)]
