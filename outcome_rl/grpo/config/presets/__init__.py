"""Settings files of this package, by name."""

from pathlib import Path

PRESETS = Path(__file__).parent


def preset_names() -> list[str]:
    """What `--config` takes besides files."""
    return sorted(path.relative_to(PRESETS).with_suffix("").as_posix() for path in PRESETS.rglob("*.yaml"))


def find_config(source: str, folder: Path) -> Path:
    """The file of a preset, or else of a path from `folder`.

    Raises:
        FileNotFoundError: there is neither.
    """
    path, preset = folder / source, PRESETS / f"{source}.yaml"
    if path.suffix not in (".yaml", ".yml") and preset.is_file():
        return preset
    if not path.is_file():
        raise FileNotFoundError(
            f"no configuration file {path}; give a YAML file or one of the presets: {', '.join(preset_names())}"
        )
    return path
