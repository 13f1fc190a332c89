"""Processes that each hold a part of a vocabulary."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

Check = Callable[[Any, slice], None]  # of the process group, and of the rows of the weight that are a process's own


def in_processes(check: Check, directory: Path, sizes: tuple[int, ...]) -> None:
    """Run a check in as many processes as there are sizes, of the parts of the vocabulary."""
    mp.spawn(_run_rank, args=(check, str(directory), sizes), nprocs=len(sizes))


def _run_rank(rank: int, check: Check, directory: str, sizes: tuple[int, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=len(sizes))
    start = sum(sizes[:rank])
    check(dist.group.WORLD, slice(start, start + sizes[rank]))
    dist.destroy_process_group()
