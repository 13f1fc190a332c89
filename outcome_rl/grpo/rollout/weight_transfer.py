"""Weights of a policy on their way into vLLM, through its weight-transfer API: init, start, update, finish.

    ipc     trainer and engine share a GPU: handles to GPU memory, through a buffer of bounded size
    nccl    the engines have separate GPUs
    file    no GPU: a file in shared memory, mapped by both sides; vLLM has no such backend, so it is registered here

Trainer and vLLM's workers import this module; vLLM's own two backends are untested so far.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from vllm.distributed.weight_transfer.base import (
    ParamMeta,
    TrainerInitInfo,
    TrainerWeightTransferEngine,
    VLLMWeightSyncClient,
    WeightSource,
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory

BACKEND = "outcome_rl_file"
_ALIGNMENT = 64  # bytes, a multiple of every dtype's size


class PolicyWeights(WeightSource):  # type: ignore[misc]  # vLLM is not installed where types are checked
    """The weights of a policy at the time of each pass over them."""

    def __init__(self, weights: Callable[[], Mapping[str, Tensor]], device: torch.device) -> None:
        self._weights = weights
        self._device = device
        self._metadata: list[ParamMeta] = []  # the same in every pass

    def metadata(self) -> list[ParamMeta]:
        self._metadata = self._metadata or [ParamMeta(name, x.dtype, tuple(x.shape)) for name, x in self]
        return self._metadata

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for name, tensor in self._weights().items():
            yield name, tensor.to(self._device)


class LocalClient:
    """The four phases, called on an engine that this process started."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._llm.init_weight_transfer_engine({"init_info": init_info})

    def start_weight_update(self) -> None:
        self._llm.start_weight_update()

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self._llm.update_weights({"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._llm.finish_weight_update(weight_version)


@dataclass
class FileTrainerInit(TrainerInitInfo):  # type: ignore[misc]
    """The folder in which the sender writes its file."""

    backend: ClassVar[str] = BACKEND
    folder: str


@dataclass
class FileInit(WeightTransferInitInfo):  # type: ignore[misc]
    """The sender's folder."""

    folder: str


@dataclass
class FileUpdate(WeightTransferUpdateInfo):  # type: ignore[misc]
    """The tensors of a file, one after another, each at the next multiple of 64 bytes."""

    path: str
    names: list[str]
    dtype_names: list[str]
    shapes: list[list[int]]

    @classmethod
    def of(cls, path: Path, weights: list[tuple[str, Tensor]]) -> Self:
        """Describe the file that takes these weights."""
        dtypes = [str(tensor.dtype).removeprefix("torch.") for _, tensor in weights]
        return cls(str(path), [name for name, _ in weights], dtypes, [list(tensor.shape) for _, tensor in weights])

    def tensors(self, *, shared: bool) -> list[tuple[str, Tensor]]:
        """Map the file, and return its tensors by name; `shared` makes the file, and writes through to it."""
        dtypes = [getattr(torch, name) for name in self.dtype_names]
        sizes = [prod(shape) * dtype.itemsize for shape, dtype in zip(self.shapes, dtypes, strict=True)]
        padded = [-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes]
        mapped = torch.from_file(self.path, shared=shared, size=sum(padded), dtype=torch.uint8)
        parts = zip(self.names, torch.split(mapped, padded), sizes, dtypes, self.shapes, strict=True)
        return [(name, part[:size].view(dtype).view(shape)) for name, part, size, dtype, shape in parts]


class FileReceiver(WeightTransferEngine):  # type: ignore[misc]
    """Loads the file in vLLM's worker."""

    init_info_cls = FileInit
    update_info_cls = FileUpdate

    def init_transfer_engine(self, init_info: FileInit) -> None:
        if not Path(init_info.folder).is_dir():
            raise ValueError(
                f"the trainer's folder {init_info.folder} is not here: without GPUs, vLLM must run on the trainer's "
                "machine, as its user; with GPUs, the server's --weight-transfer-config must name the backend nccl"
            )

    def start_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        self._expected = {name for name, _ in self.model.named_parameters()}  # a tied head is not among them
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FileUpdate) -> None:
        loaded = self.model.load_weights(update_info.tensors(shared=False))
        missing = set() if loaded is None else self._expected - loaded
        if missing:
            raise ValueError(f"vLLM's model has parameters that the policy lacks: {', '.join(sorted(missing))}")

    def finish_weight_update(self) -> None:
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, UnquantizedEmbeddingMethod
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)
        # A head that is tied to the embedding is in no checkpoint, so vLLM does not repack it for the CPU.
        for layer in self.model.modules():
            if isinstance(layer, ParallelLMHead) and isinstance(layer.quant_method, UnquantizedEmbeddingMethod):
                layer.quant_method.process_weights_after_loading(layer)

    def shutdown(self) -> None:
        """Release nothing: a mapping ends with its tensors."""


class FileSender(TrainerWeightTransferEngine):  # type: ignore[misc]
    """Writes the file in the trainer; it exists only while the workers read it."""

    init_info_cls = FileTrainerInit

    def __init__(self, folder: str, client: VLLMWeightSyncClient, source: WeightSource) -> None:
        super().__init__(client=client, source=source)
        self._path = Path(folder) / "weights"

    @classmethod
    def trainer_init(
        cls, init_info: FileTrainerInit, *, client: VLLMWeightSyncClient, source: WeightSource | None = None
    ) -> Self:
        client.init_weight_transfer_engine(asdict(FileInit(init_info.folder)))
        return cls(init_info.folder, client, source)

    def send_weights(self) -> None:
        weights = list(self.source)
        update = FileUpdate.of(self._path, weights)
        self.client.start_weight_update()
        try:
            for (_, tensor), (_, mapped) in zip(weights, update.tensors(shared=True), strict=True):
                mapped.copy_(tensor)
            self.client.update_weights(asdict(update))
        finally:
            self._path.unlink(missing_ok=True)
        self.client.finish_weight_update()


def open_sender(
    client: VLLMWeightSyncClient,
    weights: Callable[[], Mapping[str, Tensor]],
    device: torch.device,
    folder: str,
    workers: int | None = None,
) -> TrainerWeightTransferEngine:
    """Connect vLLM to the trainer; `send_weights` of the result makes an update.

    Args:
        client: makes the calls of the four phases.
        weights: returns the tensors to send, by the names that Hugging Face publishes; always the same names.
        device: the trainer's.
        folder: where a file of weights can be written.
        workers: number of vLLM's processes with weights, on other devices; None is an engine on the trainer's.
    """
    init: TrainerInitInfo
    match backend(device, servers=workers is not None):
        case "ipc":
            from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

            init = IPCTrainerInitInfo(rank=0, packed=True)  # each process sends to its own engine
        case "nccl":
            from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
            from vllm.utils.network_utils import get_ip, get_open_port

            init = NCCLTrainerInitInfo(get_ip(), get_open_port(), 1 + (workers or 0), rank=0)
        case _:
            init = FileTrainerInit(folder, rank=0)
    return WeightTransferTrainerFactory.trainer_init(init, client=client, source=PolicyWeights(weights, device))


def backend(device: torch.device, *, servers: bool = False) -> str:
    """Return the name of the backend between a trainer on `device` and its engine, or servers."""
    return BACKEND if device.type != "cuda" else "nccl" if servers else "ipc"


WeightTransferEngineFactory.register_engine(BACKEND, FileReceiver)
WeightTransferTrainerFactory.register_engine(BACKEND, FileSender)
