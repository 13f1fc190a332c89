"""Several processes of one run, as `torchrun` starts them. In a run of one process, everything here does nothing.

Every process knows all of the step's batch, so that all of them decide alike, and holds the whole policy or, with
`actor.strategy=fsdp2`, a part of it (`sharding.py`):

    sample      each its questions                      --all-gather-->  all responses, everywhere
    classify    the first process                       --all-gather-->  outcome keys, and so equal counts, everywhere
    update      each its part of the mini-batch         --all-reduce-->  sum of the gradients, the same step everywhere
                                                    --reduce-scatter-->  or each its rows of the sum, and of the step
    write       the first process

The answers are classified once because a comparison by math-verify may run out of time here and not there.
"""

import logging
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from outcome_rl.grpo.config.schema import SamplingConfig, TrainConfig
from outcome_rl.grpo.model.policy import Policy, choose_device
from outcome_rl.grpo.rollout.engine import RolloutEngine, Rollouts

T = TypeVar("T")

# Until a process that waits for another one gives up: longer than any two can be apart in a step or a checkpoint.
TIMEOUT = timedelta(minutes=30)


def world_size() -> int:
    """Number of processes of this run, by the environment that torchrun sets."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process is the one that classifies and writes."""
    return _rank() == 0


def check(config: TrainConfig) -> None:
    """Refuse what several processes cannot do.

    Raises:
        ValueError: questions that cannot be shared out equally, fewer GPUs than processes, all processes on one GPU, or
            vLLM on the CPU.
    """
    processes = world_size()
    if processes == 1:
        return
    device = choose_device(config.model.device)
    if config.data.train_batch_size % processes:
        raise ValueError(
            f"data.train_batch_size={config.data.train_batch_size} questions must be divisible by the number of "
            f"processes, {processes}, so that each samples as many; change one of the two"
        )
    if device.type == "cpu" and config.rollout.engine == "vllm":
        raise ValueError(
            f"rollout.engine=vllm with {processes} processes needs a GPU for each; on the CPU start one process, or "
            "choose rollout.engine=transformers"
        )
    if device.index is not None:
        raise ValueError(
            f"model.device={config.model.device!r} is one GPU for all {processes} processes; use auto, and choose GPUs "
            "by CUDA_VISIBLE_DEVICES"
        )
    if device.type == "cuda" and _local_rank() >= torch.cuda.device_count():
        raise ValueError(
            f"process {_local_rank() + 1} of this machine has no GPU: PyTorch sees {torch.cuda.device_count()}. Start "
            "one process a GPU (--nproc-per-node), or set model.device=cpu"
        )


def shards(config: TrainConfig) -> bool:
    """Whether the processes share the weights out instead of holding them all."""
    return config.actor.strategy == "fsdp2" and world_size() > 1


@contextmanager
def joined(config: TrainConfig) -> Iterator[None]:
    """Belong to the processes of this run; each has a GPU of its own where the policy is on one."""
    if world_size() == 1:
        yield
        return
    backends = "cpu:gloo"
    if choose_device(config.model.device).type == "cuda":
        torch.cuda.set_device(_local_rank())
        backends += ",cuda:nccl"
    if not is_first():
        logging.getLogger("outcome_rl").setLevel(logging.ERROR)  # the first process says it
    dist.init_process_group(backends, timeout=TIMEOUT)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def apart() -> Iterator[None]:
    """What is started here belongs to this process alone: it sees this process's GPU and nothing of the others."""
    if world_size() == 1:
        yield
        return
    before, gpu = dict(os.environ), _local_rank()
    launcher = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    for name in before:
        if name.endswith(launcher) or name.startswith("TORCHELASTIC_"):
            del os.environ[name]
    visible = before.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
    os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[gpu]
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def gathered(call: Callable[[], T]) -> list[T]:
    """What a call returns in each process, in their order; an exception in one of them is raised in all."""
    if world_size() == 1:
        return [call()]
    found: list[Any] = [None] * world_size()
    try:
        mine = call()
    except Exception as error:
        dist.all_gather_object(found, _portable(error))
        raise
    dist.all_gather_object(found, mine)
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


def by_first(call: Callable[[], T]) -> T:
    """What a call returns, or raises, in the first process, which alone makes it; all wait for that."""
    return cast(T, gathered(lambda: call() if is_first() else None)[0])


def largest(number: int) -> int:
    """The largest of the processes' numbers."""
    return max(gathered(lambda: number))


def add_up(*tensors: Tensor) -> None:
    """Replace tensors by their sums over the processes."""
    if world_size() > 1:
        for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
            work.wait()


def add_up_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Replace gradients by their sums over the processes; a process without work has none, which counts as zero."""
    present = gathered(lambda: [parameter.grad is not None for parameter in parameters])
    for parameter, *anywhere in zip(parameters, *present, strict=True):
        if any(anywhere) and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    add_up(*(parameter.grad for parameter in parameters if parameter.grad is not None))


@torch.no_grad()
def same_weights(model: nn.Module) -> None:
    """Begin everywhere with the weights of the first process: a model may lack some, which are then drawn at random."""
    if world_size() > 1:
        for parameter in model.parameters():
            dist.broadcast(parameter, src=0)


def share(items: Sequence[T]) -> Sequence[T]:
    """This process's part of what all share, side by side; the parts differ by one item at most."""
    bounds = [len(items) * rank // world_size() for rank in (_rank(), _rank() + 1)]
    return items[bounds[0] : bounds[1]]


def deal(items: Sequence[T]) -> Sequence[T]:
    """This process's part, dealt out in turn: of items in order of size, each process gets some of every size."""
    return items[_rank() :: world_size()]


def sharded(engine: RolloutEngine, policy: Policy) -> RolloutEngine:
    """An engine of which each process samples its part of the prompts, and gives all of the responses to all."""
    return engine if world_size() == 1 else _ShardedEngine(engine, policy.device)


class _ShardedEngine:
    def __init__(self, engine: RolloutEngine, device: torch.device) -> None:
        self._engine = engine
        self._device = device

    def update_weights(self, policy: Policy) -> None:
        self._engine.update_weights(policy)

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingConfig, max_tokens: int, seed: int
    ) -> Rollouts:
        # A prompt that occurs twice stays in one process: its seeds depend on how often it was there.
        places: dict[tuple[int, ...], list[int]] = {}
        for place, prompt in enumerate(prompts):
            places.setdefault(tuple(prompt), []).append(place)
        mine = [prompts[place] for copies in share(list(places.values())) for place in copies]

        def sample() -> Rollouts | None:
            # Without a prompt of its own too: the engine may wait for all processes to gather the weights.
            rollouts = self._engine.generate(mine or prompts[:1], sampling, max_tokens, seed)
            return rollouts.to(torch.device("cpu")) if mine else None

        parts = gathered(sample)
        rollouts = Rollouts.join([part for part in parts if part is not None]).to(self._device)
        order = [place for copies in places.values() for place in copies]
        rows = sorted(range(len(order)), key=order.__getitem__)
        return rollouts.take([row * sampling.n + sample for row in rows for sample in range(sampling.n)])


def _portable(error: Exception) -> Exception:
    """An exception as another process can read it: some cannot be made from their text alone."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever an exception does when it is copied
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))
