"""PyTorch on one thread, and no word to the stacks' home pages."""

import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from trl_runs import Make

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here needs the hub; it ends TRL's telemetry too


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--trl", help="the version of TRL that must be the one that is imported")


def pytest_configure(config: pytest.Config) -> None:
    wanted = config.getoption("--trl")
    if wanted and (found := version("trl")) != wanted:
        raise pytest.UsageError(f"--trl {wanted}, but TRL {found} comes first on the path")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Models this small run slower on two threads, and much slower where another process uses the second core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random policy for TRL."""
    from trl_runs import save_policy

    return save_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def make(policy: Path, tmp_path: Path) -> "Make":
    """`trl_runs.make_trainer` on the random policy."""
    from trl_runs import make_trainer

    return lambda **settings: make_trainer(policy, tmp_path, **settings)
