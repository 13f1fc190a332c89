"""PyTorch on one thread, and no word to the stacks' home pages."""

import gc
import os
from collections.abc import Iterator

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here needs the hub; it ends TRL's telemetry too


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Models this small run slower on two threads, and much slower where another process uses the second core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.freeze()  # accelerate collects garbage after every run, a second over all that the stacks have imported
    yield
    torch.set_num_threads(before)
