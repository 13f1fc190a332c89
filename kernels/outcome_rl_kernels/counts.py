"""Exact counts N(question, outcome): how often each outcome was sampled for each question.

The exploration bonus needs the count *before* a batch, exactly, for ever, and the same on every rank. `OutcomeCounts`
holds the public face: it checks arguments, picks a table (`counts_tables`), synchronises ranks and stores snapshots
(`counts_snapshot`).
"""

import os
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from outcome_rl_kernels.counts_native import NativeTable
from outcome_rl_kernels.counts_snapshot import check_entries, check_rule, check_total, read_snapshot, write_snapshot
from outcome_rl_kernels.counts_tables import CountEntries, CountTable, DictTable
from outcome_rl_kernels.native import native_status

MAX_CAPACITY = 2**40

CountsImpl = Literal["auto", "reference", "native"]


class OutcomeCounts:
    """Exact counts of (question key, outcome key) pairs; every pair of int64 values is a legal key.

    Where a method takes `question_keys` and `outcome_keys`, these are int64 tensors on the table's device, either of
    one shape, such as (N,) and (N,), or with one question for each row of outcomes, (B,) and (B, n).
    A call either happens as a whole or raises and leaves the counts as they were.

    Args:
        capacity: slots to begin with, 1 to 2**40, rounded up to a power of two; the table grows by itself. A hint that
            the reference does not need.
        device: where the table lives and where keys must be. This version has tables on the CPU only.
        rule: name of the rule that made the outcome keys (`outcome_rl.OUTCOME_RULE`). It is stored in snapshots, and
            counts made under another rule are refused.
        impl: `"reference"` (Python dictionaries), `"native"` (C++), or `"auto"`, which takes native where available;
            `impl` and `impl_reason` of the object say what was taken and why.

    Raises:
        ValueError: an argument is out of its range, or the device has no table.
        RuntimeError: `impl="native"`, but the native library is not available.
    """

    def __init__(
        self,
        capacity: int = 2**20,
        device: torch.device | str = "cpu",
        *,
        rule: str = "",
        impl: CountsImpl = "auto",
    ) -> None:
        self.device = _check_device(device)
        self.rule = rule
        self.impl, self.impl_reason = _choose(impl)
        self._capacity = _check_capacity(capacity)
        self._table = self._new_table()
        self._total = 0
        self._synced = 0  # digest of all that is not pending

    def observe(self, question_keys: Tensor, outcome_keys: Tensor) -> Tensor:
        """Returns the counts before this call, then adds one for every row.

        Equal pairs within one call all get the same value.

        Returns:
            int64 counts in the shape of `outcome_keys`.
        """
        questions, outcomes = self._flat_keys(question_keys, outcome_keys)
        before = self._table.observe(questions, outcomes)
        self._total += outcomes.numel()
        return before.reshape(outcome_keys.shape)

    def lookup(self, question_keys: Tensor, outcome_keys: Tensor) -> Tensor:
        """Returns the counts, 0 for pairs never seen, as int64 in the shape of `outcome_keys`."""
        questions, outcomes = self._flat_keys(question_keys, outcome_keys)
        return self._table.lookup(questions, outcomes).reshape(outcome_keys.shape)

    def merge(self, question_keys: Tensor, outcome_keys: Tensor, counts: Tensor) -> None:
        """Adds `counts` (int64, positive, shaped like `outcome_keys`), as if observed so many times on this rank."""
        questions, outcomes = self._flat_keys(question_keys, outcome_keys)
        self._check_tensor("counts", counts)
        if counts.shape != outcome_keys.shape:
            raise ValueError(
                f"counts must have the shape of outcome_keys, {tuple(outcome_keys.shape)}, got {tuple(counts.shape)}"
            )
        if (counts <= 0).any():
            raise ValueError(f"counts must be positive, got {int(counts.min())}; leave out pairs that were not seen")
        total = check_total(self._total, counts, "merge")
        self._table.add(CountEntries(questions, outcomes, counts.reshape(-1).contiguous()), pending=True)
        self._total = total

    def distinct(self, question_keys: Tensor) -> Tensor:
        """Returns how many different outcomes each question has had, as int64 in the shape of `question_keys`."""
        self._check_tensor("question_keys", question_keys)
        return self._table.distinct(question_keys.reshape(-1).contiguous()).reshape(question_keys.shape)

    def items(self) -> CountEntries:
        """Returns every pair and its count, sorted by (question key, outcome key) as signed numbers."""
        return _sort(self._table.entries())

    def clear(self) -> None:
        """Forgets all counts."""
        self._table.clear()
        self._total = self._synced = 0

    def sync(self, process_group: dist.ProcessGroup | None = None) -> None:
        """Gives every rank the sum of what all ranks have added since the last call.

        Ranks must start from equal counts (new, or loaded from one snapshot) and all call this. Without a process group
        (none given and none initialised) this rank counts as the only one.

        Raises:
            ValueError: this rank is not in the group, or the ranks did not start equal or have different outcome rules;
                the counts stay as they were.
        """
        pending = _sort(self._table.pending())
        if process_group is not None or (dist.is_available() and dist.is_initialized()):
            self._add_from_peers(pending, process_group)
        self._table.clear_pending()
        self._synced = _digest(pending, self._synced)

    def state_dict(self) -> dict[str, Any]:
        """Returns the rule and the sorted entries; call `sync` first, what is unsynchronised is not marked as such."""
        return {"rule": self.rule, **self.items()._asdict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replaces the counts by those of a `state_dict`; they count as synchronised.

        Raises:
            ValueError: another outcome rule, or entries that are not valid; the counts stay as they were.
        """
        if "rule" not in state:
            raise ValueError(f"state_dict: the outcome rule is missing, got only {sorted(state)}")
        check_rule(state["rule"], self.rule, "state_dict")
        tensors = {name: value for name, value in state.items() if name != "rule"}
        self._replace(check_entries(tensors, "state_dict"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a safetensors snapshot atomically; equal counts give equal bytes. Call `sync` first, as above."""
        write_snapshot(path, self.items(), self.rule)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        device: torch.device | str = "cpu",
        rule: str | None = None,
        impl: CountsImpl = "auto",
    ) -> Self:
        """Reads a snapshot into a new table; its counts count as synchronised.

        Args:
            path: a file that `save` wrote.
            device: as for the constructor.
            rule: the outcome rule in force; None takes the one of the snapshot.
            impl: as for the constructor.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: another outcome rule, or a file that is damaged, foreign or not valid.
        """
        entries, found_rule = read_snapshot(path)
        check_rule(found_rule, found_rule if rule is None else rule, str(path))
        counts = cls(device=device, rule=found_rule, impl=impl)
        counts._replace(entries)
        return counts

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return f"OutcomeCounts({len(self)} pairs, device={self.device}, rule={self.rule!r}, impl={self.impl!r})"

    def _new_table(self) -> CountTable:
        return NativeTable(self._capacity) if self.impl == "native" else DictTable()

    def _replace(self, entries: CountEntries) -> None:
        table = self._new_table()
        table.add(entries, pending=False)
        self._table, self._total, self._synced = table, int(entries.counts.sum()), _digest(entries)

    def _add_from_peers(self, pending: CountEntries, process_group: dist.ProcessGroup | None) -> None:
        rank = dist.get_rank(process_group)
        if rank < 0:
            raise ValueError("process_group does not contain this rank; call sync on its members only")
        common = self._total - int(pending.counts.sum())
        gathered: list[Any] = [None] * dist.get_world_size(process_group)
        dist.all_gather_object(gathered, (self.rule, common, self._synced, pending), group=process_group)
        rules, commons, digests, entries_of = zip(*gathered, strict=True)
        if len(set(rules)) > 1:
            raise ValueError(f"the ranks count under different outcome rules, {rules}; construct all with one rule")
        if len(set(digests)) > 1:
            raise ValueError(
                f"the ranks did not start from equal counts: without what is new, theirs add up to {commons}, with "
                f"digests {digests}; load one snapshot on all ranks, or none"
            )
        peers = [entries for peer, entries in enumerate(entries_of) if peer != rank]
        if not peers:
            return
        entries = _sort(CountEntries(*(torch.cat(columns) for columns in zip(*peers, strict=True))))
        total = check_total(self._total, entries.counts, "sync")
        self._table.add(entries, pending=False)
        self._total = total
        self._synced = _digest(entries, self._synced)

    def _flat_keys(self, question_keys: Tensor, outcome_keys: Tensor) -> tuple[Tensor, Tensor]:
        self._check_tensor("question_keys", question_keys)
        self._check_tensor("outcome_keys", outcome_keys)
        if question_keys.shape == outcome_keys.shape[:-1] and outcome_keys.ndim > 0:
            question_keys = question_keys.unsqueeze(-1).expand_as(outcome_keys)
        if question_keys.shape != outcome_keys.shape:
            raise ValueError(
                "question_keys must have the shape of outcome_keys or one key for each of its rows, here "
                f"{tuple(outcome_keys.shape)} or {tuple(outcome_keys.shape[:-1])}, got {tuple(question_keys.shape)}"
            )
        return question_keys.reshape(-1).contiguous(), outcome_keys.reshape(-1).contiguous()

    def _check_tensor(self, name: str, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be an int64 tensor, got {type(tensor).__name__}; use torch.tensor(...)")
        if tensor.dtype != torch.int64:
            raise TypeError(f"{name} must have dtype torch.int64, got {tensor.dtype}; convert it with .long()")
        if tensor.device != self.device:
            raise ValueError(f"{name} must be on the table's device, {self.device}, got {tensor.device}; move it there")


def _choose(impl: CountsImpl) -> tuple[Literal["reference", "native"], str]:
    if impl == "reference":
        return "reference", "asked for"
    available, reason = native_status()
    if impl == "auto":
        if available:
            return "native", "the native library is available"
        return "reference", f"the native library is not available: {reason}"
    if impl == "native":
        if not available:
            raise RuntimeError(f"impl='native' cannot run: {reason}")
        return "native", "asked for"
    raise ValueError(f"impl must be 'auto', 'reference' or 'native', got {impl!r}")


def _check_device(device: torch.device | str) -> torch.device:
    device = torch.device(device)
    if device.type != "cpu":
        raise ValueError(
            f"device must be 'cpu', got '{device}': the CUDA table is not available in this version. "
            "Keep the counts on the CPU and move the keys there."
        )
    return torch.device("cpu")


def _check_capacity(capacity: int) -> int:
    if isinstance(capacity, bool) or not isinstance(capacity, int):
        raise TypeError(f"capacity must be an int, got {type(capacity).__name__}")
    if not 1 <= capacity <= MAX_CAPACITY:
        raise ValueError(f"capacity must be from 1 to 2**40 slots, got {capacity}")
    return capacity


def _sort(entries: CountEntries) -> CountEntries:
    order = torch.from_numpy(np.lexsort((entries.outcome_keys.numpy(), entries.question_keys.numpy())))
    return CountEntries(*(column[order] for column in entries))


def _digest(entries: CountEntries, start: int = 0) -> int:
    """`start + sum of mix(question, outcome) * count` modulo 2**64.

    The digest of a sum of counts is the sum of their digests, in any order: it is kept up to date from what is new,
    never computed over the table. Tables that differ agree by chance once in about 2**64.
    """
    questions, outcomes, counts = (column.numpy().view(np.uint64) for column in entries)
    # Added to the question, so that pair (0, 0) is not digested as 0: the golden ratio, as SplitMix64 has it.
    mixed = _mix64(_mix64(questions + np.uint64(0x9E3779B97F4A7C15)) + outcomes)
    return (start + int((mixed * counts).sum())) % 2**64


def _mix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64, a bijection."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
