"""Presets: the settings files of this package."""

from pathlib import Path

PRESETS = Path(__file__).parent


def preset_names() -> list[str]:
    """Return the names that `--config` takes instead of a file."""
    return sorted(path.relative_to(PRESETS).with_suffix("").as_posix() for path in PRESETS.rglob("*.yaml"))


def find_config(source: str, folder: Path) -> Path:
    """Find the file of a preset, or of a path relative to `folder`.

    Raises:
        FileNotFoundError: neither exists.
    """
    path, preset = folder / source, PRESETS / f"{source}.yaml"
    if path.suffix not in (".yaml", ".yml") and preset.is_file():
        return preset
    if not path.is_file():
        from outcome_rl_kernels.checks import did_you_mean  # with PyTorch, which `--help` does not need

        names = preset_names()
        raise FileNotFoundError(
            f"no configuration file {path}{' (a folder)' * path.is_dir()}; give a YAML file or one of the presets: "
            f"{', '.join(names)}{did_you_mean(source, names)}"
        )
    return path
