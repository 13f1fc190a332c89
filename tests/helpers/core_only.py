"""Run Python code where only the core dependencies can be imported: `python core_only.py CODE ARGUMENT...`.

The packages that pyproject.toml asks for outside its extras, and their own dependencies, are left; every other
installed package is hidden from the import system.
"""

import sys
import tomllib
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def core_packages() -> set[str]:
    """Return the names of the core dependencies and of all packages that they need."""
    found = {"outcome-rl"}
    waiting = list(tomllib.loads(PROJECT.read_text())["project"]["dependencies"])
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        try:
            waiting += requires(name) or []
        except PackageNotFoundError:  # of another platform
            continue
    return found


def other_modules() -> Iterator[str]:
    """Yield the importable names of the installed packages that the core does not need."""
    core = core_packages()
    for module, owners in packages_distributions().items():
        if not {canonicalize_name(owner) for owner in owners} & core:
            yield module


class Hiding:
    """A finder of modules that does not find those of some packages."""

    def __init__(self, finder: Any, hidden: frozenset[str]) -> None:
        self.finder, self.hidden = finder, hidden

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] in self.hidden:
            return None
        spec: ModuleSpec | None = self.finder.find_spec(name, path, target)
        return spec

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)


if __name__ == "__main__":
    hidden = frozenset(other_modules())
    for name in [name for name in sys.modules if name.partition(".")[0] in hidden]:
        del sys.modules[name]
    sys.meta_path[:] = [Hiding(finder, hidden) for finder in sys.meta_path]
    sys.argv = sys.argv[1:]
    exec(sys.argv[0])
