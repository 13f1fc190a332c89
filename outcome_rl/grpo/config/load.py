"""Settings from YAML files and `key=value` overrides, checked before anything else starts.

An unknown key is an error that names the nearest valid one. All text is literal: `${name}` refers to nothing, because a
prompt may hold LaTeX.
"""

import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import yaml  # type: ignore[import-untyped]

from outcome_rl.files.bounds import SETTINGS, read_state_file, too_large
from outcome_rl.grpo.config.presets import find_config, preset_names
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.retired import replacements
from outcome_rl_kernels.settings import Setting, needing_user, nested, settings_of, with_values, yaml_text

MAX_DEPTH = 50  # of a file of settings, whatever the stack has room for
_METHOD = ("exploration.adv_estimator", "exploration.bonus")


def load_config(
    source: str | Path | None = None, overrides: Sequence[str] = (), *, trusted: bool = True
) -> TrainConfig:
    """Load the defaults, then a YAML file or preset, then `key=value` overrides.

    Args:
        source: path of a YAML file, or the name of a preset in this package (`preset_names`). Its key `base` names
            another one, a preset or a path from its folder, that it changes.
        overrides: such as `rollout.n=16` or `data.train_files=[a.jsonl,b.jsonl]`; text is taken literally, so that a
            prompt template may hold braces and colons.
        trusted: whether the user named `source` as settings. The file of a run's folder gives data: what names code
            (`Setting.needs_user`) must come from `overrides`.

    Raises:
        FileNotFoundError: no such file or preset.
        ValueError: an unknown key (with the nearest valid one), a value of the wrong type or out of range, settings
            that contradict each other, or one that only the user may give.
    """
    known = {one.name: one for one in settings_of(TrainConfig)}
    of_file = _values(_with_bases(find_config(str(source), Path())) if source is not None else [], known)
    of_user = _values([(f"override {override!r}", _parse_override(override, known)) for override in overrides], known)
    refused = {} if trusted else needing_user(TrainConfig, of_file)
    if unasked := " ".join(f"{name}={yaml_text(value)}" for name, value in refused.items() if name not in of_user):
        raise ValueError(
            f"{source} names code to run, and may come from somebody else, so it is not run unasked. If you trust it, "
            f"add {unasked} to the command; else give other values there"
        )
    values = of_file | of_user
    if not values.keys().isdisjoint(_METHOD):  # the recommended method is not mixed with one that is named
        values = dict.fromkeys(_METHOD, "") | values
    for place in ("trainer.default_local_dir", "trainer.rollout_data_dir"):
        folder = values.get(place, known[place].default)
        values[place] = folder and os.path.abspath(folder)  # user code may change the folder
    try:
        config = with_values(TrainConfig(), values)
    except TypeError as error:
        raise ValueError(str(error)) from error
    config.check()
    return config


def _values(layers: Sequence[tuple[str, Mapping[str, Any]]], known: Mapping[str, Setting]) -> dict[str, Any]:
    """Return name -> value of the layers, (origin, settings), of which a later one replaces an earlier one."""
    values = {}
    for origin, layer in layers:
        settings = dict(leaves(layer))
        _check_keys(settings, known, origin)
        for key, value in settings.items():
            if key in known:
                try:
                    values[key] = known[key].parse(value)
                except (TypeError, ValueError) as error:
                    now = f". Write {replacements()[key]}" if key in replacements() else ""
                    raise ValueError(f"{origin}: {error}{now}") from error
    return values


def to_yaml(config: TrainConfig) -> str:
    """Write the resolved configuration as YAML that `load_config` reads."""
    content = nested(config)
    escape = r"\x85" in repr(content)  # YAML reads this character as a line end
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=not escape))


def _with_bases(path: Path, above: tuple[Path, ...] = ()) -> list[tuple[str, dict[str, Any]]]:
    """Read a file and the one that its key `base` names, and so on, the last base first."""
    if path in above:
        raise ValueError(f"{path}: base leads back to the file itself, through {', '.join(map(str, above))}")
    content = read_yaml(path)
    base = content.pop("base", None)
    if base is None:
        return [(str(path), content)]
    if not isinstance(base, str):
        raise ValueError(f"{path}: base must be a preset or a file; got {base!r}")
    return [*_with_bases(find_config(base, path.parent), (*above, path)), (str(path), content)]


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML without aliases, a few of which may stand for more than fits, and without duplicate keys; a date is text."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("write the value again in place of the alias")
        if len(self.states) > MAX_DEPTH:  # one for each collection that is open
            raise yaml.YAMLError(f"it is nested deeper than {MAX_DEPTH} levels")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):  # PyYAML refuses it
                continue
            if key in keys:
                line = key_node.start_mark.line + 1
                raise yaml.constructor.ConstructorError(f"the key {key!r} occurs twice, the second time on line {line}")
            keys.add(key)
        return super().construct_mapping(node, deep)


def _parse_yaml(text: str | bytes, subject: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        why = " ".join(str(error).split())
        raise ValueError(f"{subject} not valid YAML: {why}; a text with brackets or colons needs quotes") from error


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a file of settings.

    Raises:
        ValueError: it is no YAML, no mapping, or too large.
    """
    text = read_state_file(path)
    if len(text) > SETTINGS:
        raise too_large(path, "the file", SETTINGS, "Give a file of settings")
    content = _parse_yaml(text, f"{path}:")
    if not isinstance(content, dict | None):
        raise ValueError(f"{path}: expected sections such as 'model:' and 'data:'; got a {type(content).__name__}")
    return content or {}


def _parse_override(override: str, known: Mapping[str, Setting]) -> dict[str, Any]:
    key, equals, text = override.partition("=")
    if not equals:
        hint = f"; did you mean --config {override}?" if override in preset_names() else ""
        raise ValueError(f"override {override!r} must have the form key=value, such as rollout.n=16{hint}")
    if key in known and isinstance(known[key].default, str):
        return {key: text}
    return {key: _parse_yaml(text, f"override {override!r}: the value is")}


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings of nested sections under their dotted keys; the value of a setting may be a mapping too."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and f"{prefix}{key}" not in _mappings():
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


@cache
def _mappings() -> frozenset[str]:
    return frozenset(one.name for one in settings_of(TrainConfig) if isinstance(one.default, dict))


def _check_keys(settings: Mapping[str, Any], known: Mapping[str, Any], origin: str) -> None:
    sections, faults = {key.rpartition(".")[0] for key in known}, []
    for key, value in settings.items():
        if key in known or (key in sections and value is None):
            continue
        if key in replacements():
            faults.append(f"{key} is no setting any more; instead: {replacements()[key]}")
            continue
        if key in sections:
            inside = min((name for name in known if name.startswith(f"{key}.")), key=len)
            faults.append(f"{key!r} must be a mapping of settings such as {inside!r}; got {value!r}")
            continue
        # A right name in the wrong section is nearer than a similar name in the right one.
        leaf = key.rpartition(".")[2]
        same_leaf = [name for name in known if name.rpartition(".")[2] == leaf]
        nearest = get_close_matches(key, same_leaf or known, n=1, cutoff=0 if same_leaf else 0.5)
        names = ", ".join(sorted(section.name for section in fields(TrainConfig)))
        hint = f"; did you mean {nearest[0]!r}?" if nearest else f"; sections are {names}"
        faults.append(f"unknown config key {key!r}{hint}")
    if faults:
        raise ValueError(f"{origin}: {'. '.join(faults)}")
