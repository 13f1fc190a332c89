"""Run Python code where only the core dependencies can be imported: `python core_only.py CODE ARGUMENT...`.

The packages that pyproject.toml asks for outside its extras, and their own dependencies, are left; every other
installed package is hidden from the import system. CORE_ONLY_PLATFORM=darwin leaves those that it asks for on macOS.
"""

import os
import sys
import tomllib
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

USE_THE_CORE = r"""
import torch
from outcome_rl import OutcomeCounts, OutcomeMatcher, group_advantages, linear_policy_loss, question_key
outcomes = OutcomeMatcher().classify(["q", "q"], [r"\boxed{1/2}", "none"], ["0.5", "0.5"])
assert outcomes.correct.tolist() == [True, False]
assert OutcomeMatcher().classify(["q"], [r"\boxed{\sum_{k=1}^n k}"], [r"\sin x"]).correct.tolist() == [False]
counts = OutcomeCounts()
questions, keys = torch.tensor([question_key("q")]), torch.tensor(outcomes.keys)[None]
group = group_advantages(torch.tensor([[1.0, 0.0]]), questions, keys, counts, bonus="ucb")
assert len(counts) == 2
hidden, weight = torch.randn(2, 3, 4, requires_grad=True), torch.randn(7, 4, requires_grad=True)
mask = torch.ones(2, 3, dtype=torch.bool)
loss = linear_policy_loss(hidden, weight, torch.ones(2, 3, dtype=torch.long), group.advantages[0], mask).loss
loss.backward()
assert weight.grad.isfinite().all()
print("done")
"""

PLATFORM = os.environ.get("CORE_ONLY_PLATFORM", sys.platform)
MARKERS = {"extra": "", "sys_platform": PLATFORM, "platform_system": PLATFORM.capitalize()}
PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def core_packages() -> set[str]:
    """Return the names of the core dependencies and of all packages that they need."""
    found = {"outcome-rl"}
    waiting = list(tomllib.loads(PROJECT.read_text())["project"]["dependencies"])
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate(MARKERS)):
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
