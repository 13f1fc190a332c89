"""Ledger of a call on meta tensors: the operations that a GPU would run, and the memory held.

Views and allocations cost nothing. An operation reads its arguments once and writes its results once, as if no cache
held them; an index reads no more than it returns. Meta tensors stand for those of the GPU: an operation that
takes them together with a tensor of the CPU is refused, and what the host waits for is listed: copies between the two,
numbers that it reads, and `nonzero`, whose result has as many rows as the GPU alone knows (here half of them). The host
reads ones.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_SELECTIONS = ("index", "index_select", "gather", "embedding")
_FREE = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "lift_fresh", "_unsafe_view")
_FILLS = ("zeros", "new_zeros", "zeros_like", "ones", "ones_like", "full", "new_full", "arange")
_PRODUCTS = ("mm", "addmm")


class Operation(NamedTuple):
    name: str
    read_bytes: int
    written_bytes: int
    multiply_adds: int = 0

    def milliseconds(self, flops: float, bytes_per_second: float) -> float:
        """Return the larger of the times that arithmetic and memory traffic take."""
        moved = self.read_bytes + self.written_bytes
        return 1e3 * max(2 * self.multiply_adds / flops, moved / bytes_per_second)


def size_of(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


class Ledger(TorchDispatchMode):
    """Record what runs in a `with` block; `note` adds the launch of a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self.peak_bytes = 0  # beyond the tensors of before
        self.waits: list[str] = []  # operations for which the host waits
        self._storages: dict[StorageWeakRef, int] = {}
        self._older: set[StorageWeakRef] = set()

    def note(self, name: str, read: int, written: int) -> None:
        self.operations.append(Operation(name, read, written))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        for tensor in given:
            reference = StorageWeakRef(tensor.untyped_storage())
            if reference not in self._storages:
                self._older.add(reference)
        self._check_devices(func, given)
        if func is torch.ops.aten.nonzero.default and given[0].is_meta:
            self.waits.append("nonzero")
            return given[0].new_empty(given[0].numel() // 2, given[0].dim(), dtype=torch.int64)
        if func is torch.ops.aten._local_scalar_dense.default and given[0].is_meta:
            self.waits.append("item")
            return torch.ones((), dtype=given[0].dtype).item()
        if func is torch.ops.aten._to_copy.default and given[0].is_meta and _to_host(kwargs):
            self.waits.append("to host")
            return torch.ones(given[0].shape, dtype=kwargs.get("dtype") or given[0].dtype)
        result = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self._hold(made)
        name = func.overloadpacket.__name__
        if name in ("_to_copy", "copy_") and len({tensor.is_meta for tensor in given + made}) > 1:
            self.waits.append(name)
        aliases = {StorageWeakRef(tensor.untyped_storage()) for tensor in given}
        is_view = func.is_view or (not func._schema.is_mutable and bool(made) and self._are_views(made, aliases))
        if made and not is_view and name not in _FREE:
            self._record(func, name, given, made)
        return result

    @staticmethod
    def _check_devices(func: Any, given: list[Tensor]) -> None:
        """Refuse tensors of two devices; a single number of the CPU is an argument of the launch."""
        mixed = {tensor.is_meta for tensor in given if tensor.is_meta or tensor.dim() > 0}
        if len(mixed) > 1 and func.overloadpacket.__name__ not in ("_to_copy", "copy_"):
            raise RuntimeError(f"{func} takes tensors of the GPU and of the CPU")

    def _hold(self, made: list[Tensor]) -> None:
        for tensor in made:
            storage = tensor.untyped_storage()
            reference = StorageWeakRef(storage)
            if reference not in self._older:
                self._storages[reference] = storage.nbytes()
        self._storages = {reference: size for reference, size in self._storages.items() if not reference.expired()}
        self.peak_bytes = max(self.peak_bytes, sum(self._storages.values()))

    @staticmethod
    def _are_views(made: list[Tensor], aliases: set[StorageWeakRef]) -> bool:
        return all(StorageWeakRef(tensor.untyped_storage()) in aliases for tensor in made)

    def _record(self, func: Any, name: str, given: list[Tensor], made: list[Tensor]) -> None:
        base, written = name.rstrip("_"), sum(map(size_of, made))
        multiply_adds = 0
        if base in _PRODUCTS:
            factors = [tensor for tensor in given if not any(tensor is out for out in made)]
            if base == "addmm" and len(factors) == 3:
                factors = factors[1:]
            (rows, inner), columns = factors[0].shape, factors[1].shape[1]
            multiply_adds = rows * inner * columns
        if base in _SELECTIONS:
            read = written + sum(size_of(tensor) for tensor in given[1:])
        elif base in _FILLS or base in ("zero", "fill"):
            read = 0
        elif base == "mm":
            read = sum(size_of(tensor) for tensor in given if not any(tensor is out for out in made))
        else:
            read = sum(size_of(tensor) for tensor in {id(tensor): tensor for tensor in given}.values())
        self.operations.append(Operation(str(func).removeprefix("aten."), read, written, multiply_adds))


def _to_host(settings: dict[str, Any]) -> bool:
    device = settings.get("device")
    return device is not None and torch.device(device).type == "cpu"


def ledger_of(call: Callable[[Ledger], Any]) -> Ledger:
    """Run `call`, which may note launches in the ledger that it is given."""
    with Ledger() as ledger:
        call(ledger)
    return ledger
