"""Every setting of the trainer, as a file of the defaults."""

import textwrap

import yaml  # type: ignore[import-untyped]

from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl_kernels.settings import Setting, settings_of


def settings_yaml() -> str:
    """Describe every setting in a YAML file of the defaults: help and allowed values stand above each."""
    lines: list[str] = []
    open_sections: list[str] = []
    for one in settings_of(TrainConfig):
        *sections, name = one.name.split(".")
        for depth, section in enumerate(sections):
            if open_sections[: depth + 1] != sections[: depth + 1]:
                lines += ["", f"{'  ' * depth}{section}:"]
        open_sections, indent = sections, "  " * len(sections)
        text = f"{one.help} ({one.allowed})" if one.allowed else one.help
        lines += textwrap.wrap(text, 110, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
        lines.append(f"{indent}{name}: {default_text(one)}")
    return "\n".join(lines[1:]) + "\n"


def default_text(one: Setting) -> str:
    """Return the default of a setting as YAML on one line."""
    value = list(one.default) if isinstance(one.default, tuple) else one.default
    text: str = yaml.safe_dump(value, default_flow_style=True)
    return text.splitlines()[0]
