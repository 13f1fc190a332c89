"""Processes that are the ranks of one group."""

import gc
import socket
from collections.abc import Callable
from multiprocessing import set_forkserver_preload
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

# A process is a fork of one that has imported these and done nothing else, and so starts in milliseconds.
set_forkserver_preload(["hypothesis", "pytest", "torch.distributed", "transformers.models.llama.modeling_llama"])


def start(function: Callable[..., None], args: tuple[Any, ...], processes: int) -> None:
    """Call `function(rank, *args)` in so many fresh processes; raise if one of them fails."""
    mp.start_processes(function, args=args, nprocs=processes, start_method="forkserver")


def free_port() -> int:
    """Return a port of this machine that is free at the moment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def on_ranks(world_size: int, check: Callable[..., None], directory: Path, *args: Any) -> None:
    """Call `check(rank, *args)` in each of `world_size` processes; raise if one of them fails.

    Args:
        world_size: Number of processes.
        check: Function of a module.
        directory: Folder in which the processes find one another.
        args: Values that can be pickled.
    """
    start(_run_rank, (world_size, check, f"file://{directory}/store", args), world_size)


def _run_rank(rank: int, world_size: int, check: Callable[..., None], store: str, args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world_size)
    check(rank, *args)
    dist.barrier()  # a rank that leaves earlier breaks the connections that another one is still making
    dist.destroy_process_group()
    gc.collect()  # as in `distributed.process_group`: what still refers to the group keeps its threads


def on_shards(check: Callable[[Any, slice], None], directory: Path, sizes: tuple[int, ...]) -> None:
    """Call `check(group, rows)` on ranks of which each holds `rows` of a weight, as many as its size."""
    on_ranks(len(sizes), _check_shard, directory, check, sizes)


def _check_shard(rank: int, check: Callable[[Any, slice], None], sizes: tuple[int, ...]) -> None:
    start = sum(sizes[:rank])
    check(dist.group.WORLD, slice(start, start + sizes[rank]))
