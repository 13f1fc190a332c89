"""Exact counts N(question, outcome): how often each outcome was sampled for each question.

The exploration bonus needs the count *before* a batch, exactly, for ever, and the same on every rank. `OutcomeCounts`
checks arguments, picks a table (`reference`, `native`, `triton`), synchronises ranks and stores snapshots (`snapshot`).
"""

import os
import threading
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from outcome_rl_kernels.backends import Backend, Impl, aligned, choose
from outcome_rl_kernels.checks import check_like, check_tensor
from outcome_rl_kernels.counts.native import NativeTable
from outcome_rl_kernels.counts.reference import CountEntries, CountTable, DictTable
from outcome_rl_kernels.counts.snapshot import (
    check_entries,
    check_rule,
    check_total,
    digest,
    read_snapshot,
    sort_entries,
    write_snapshot,
)

MAX_CAPACITY = 2**40


class OutcomeCounts:
    """Exact counts of (question key, outcome key) pairs; every pair of int64 values is a legal key.

    Where a method takes `question_keys` and `outcome_keys`, these are int64 tensors on the table's device, either of
    one shape, such as (N,) and (N,), or with one question for each row of outcomes, (B,) and (B, n).
    A call either happens as a whole or raises and leaves the counts as they were. Threads may share a table: every call
    holds `lock`, `sync` also while it waits for the other ranks.

    On a GPU, `observe`, `lookup` and `group_advantages` do not synchronise, except to grow and, once in many calls, to
    read how full the table is. They can be captured in a CUDA graph; the table cannot grow after that, so construct it
    large enough: a replay without room counts nothing, and the next call that synchronises raises a RuntimeError. After
    `load_state_dict` a graph must be captured again.

    Args:
        capacity: initial slots of 32 bytes, 1 to 2**40, rounded up to a power of two; at most 0.6 of them are
            used, then the table grows by itself. A hint that the reference does not need.
        device: where the table lives and where keys must be.
        rule: name of the rule that made the outcome keys (`outcome_rl.OUTCOME_RULE`). It is stored in snapshots, and
            counts made under another rule are refused.
        impl: `"reference"` (Python dictionaries), `"native"` (C++), `"triton"` (GPU), or `"auto"`, the fastest that
            runs on the device; `impl` and `impl_reason` of the object say what was taken and why.

    Raises:
        ValueError: an argument is out of its range, or `impl` cannot run on the device.
        MemoryError: there is no memory for so many slots; methods raise it where the table cannot grow.
    """

    def __init__(
        self,
        capacity: int = 2**20,
        device: torch.device | str = "cpu",
        *,
        rule: str = "",
        impl: Impl = "auto",
    ) -> None:
        self.device = _with_index(torch.device(device))
        self.rule = rule
        on_cpu_only: dict[Backend, str] = {}
        if self.device.type != "cpu":
            on_cpu_only = {"reference": f"it counts on the CPU, not on '{self.device}'"}
        self.impl, self.impl_reason = choose("OutcomeCounts", impl, self.device, obstacles=on_cpu_only)
        self._capacity = _check_capacity(capacity)
        self.table = self._new_table()  # public for kernels that count on their way
        self._synced = 0  # digest of all that is not pending
        self.lock = threading.RLock()  # held by every method, and by these kernels

    def observe(self, question_keys: Tensor, outcome_keys: Tensor) -> Tensor:
        """Return the counts before this call, then add one for every row.

        Equal pairs within one call all get the same value.

        Returns:
            int64 counts in the shape of `outcome_keys`.
        """
        questions, outcomes = self._flat_keys(question_keys, outcome_keys)
        with self.lock:
            return self.table.observe(questions, outcomes).reshape(outcome_keys.shape)

    def lookup(self, question_keys: Tensor, outcome_keys: Tensor) -> Tensor:
        """Return the counts, 0 for pairs never seen, as int64 in the shape of `outcome_keys`."""
        questions, outcomes = self._flat_keys(question_keys, outcome_keys)
        with self.lock:
            return self.table.lookup(questions, outcomes).reshape(outcome_keys.shape)

    def merge(self, question_keys: Tensor, outcome_keys: Tensor, counts: Tensor) -> None:
        """Add `counts` (int64, positive, shaped like `outcome_keys`), as if observed so many times on this rank."""
        questions, outcomes = self._flat_keys(question_keys, outcome_keys)
        check_like("counts", counts, (torch.int64,), "outcome_keys", outcome_keys)
        if (counts <= 0).any():
            raise ValueError(f"counts must be positive, got {int(counts.min())}; leave out pairs that were not seen")
        entries = CountEntries(questions, outcomes, aligned(counts.reshape(-1)))
        with self.lock:
            check_total(self.table.total(), counts, "merge")
            self.table.add(entries, pending=True)

    def items(self) -> CountEntries:
        """Return every pair and its count, sorted by (question key, outcome key) as signed numbers."""
        with self.lock:
            entries = self.table.entries()
        return sort_entries(entries)

    def sync(self, process_group: dist.ProcessGroup | None = None) -> None:
        """Give every rank the sum of the counts that all ranks have added since the last call.

        Ranks must start from equal counts (new, or loaded from one snapshot) and all call this. Without a process group
        (none given and none initialised) this rank counts as the only one.

        Raises:
            ValueError: this rank is not in the group, or the ranks did not start equal or have different outcome rules;
                the counts stay as they were.
        """
        with self.lock:  # counts from another thread in between would be dropped as if sent
            pending = sort_entries(_to_device(self.table.entries(pending=True), "cpu"))
            if process_group is not None or (dist.is_available() and dist.is_initialized()):
                self._add_from_peers(pending, process_group)
            self.table.clear_pending()
            self._synced = digest(pending, self._synced)

    def state_dict(self) -> dict[str, Any]:
        """Return the rule and the sorted entries; call `sync` first: the state does not mark unsynchronised counts."""
        return {"rule": self.rule, **self.items()._asdict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace the counts by those of a `state_dict`; they count as synchronised.

        Raises:
            ValueError: another outcome rule, or entries that are not valid; the counts stay as they were.
        """
        if "rule" not in state:
            raise ValueError(f"state_dict: the outcome rule is missing, got only {sorted(state)}")
        check_rule(state["rule"], self.rule, "state_dict")
        tensors = {name: value for name, value in state.items() if name != "rule"}
        self._replace(check_entries(tensors, "state_dict"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors snapshot atomically; equal counts give equal bytes. Call `sync` first, as above."""
        write_snapshot(path, _to_device(self.items(), "cpu"), self.rule)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        device: torch.device | str = "cpu",
        rule: str | None = None,
        impl: Impl = "auto",
    ) -> Self:
        """Read a snapshot into a new table; its counts count as synchronised.

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
        with self.lock:
            return len(self.table)

    def __repr__(self) -> str:
        return f"OutcomeCounts({len(self)} pairs, device={self.device}, rule={self.rule!r}, impl={self.impl!r})"

    def _new_table(self) -> CountTable:
        if self.impl == "triton":
            from outcome_rl_kernels.counts.triton import TritonTable  # not above: triton is heavy, and on Linux only

            return TritonTable(self._capacity, self.device)
        return NativeTable(self._capacity) if self.impl == "native" else DictTable()

    def _replace(self, entries: CountEntries) -> None:
        table = self._new_table()
        table.add(_to_device(entries, self.device), pending=False)
        with self.lock:
            self.table, self._synced = table, digest(entries)

    def _add_from_peers(self, pending: CountEntries, process_group: dist.ProcessGroup | None) -> None:
        rank = dist.get_rank(process_group)
        if rank < 0:
            raise ValueError("process_group does not contain this rank; call sync on its members only")
        common = self.table.total() - int(pending.counts.sum())
        gathered: list[Any] = [None] * dist.get_world_size(process_group)
        dist.all_gather_object(gathered, (self.rule, common, self._synced, pending), group=process_group)
        rules, commons, digests, entries_of = zip(*gathered, strict=True)
        if len(set(rules)) > 1:
            raise ValueError(f"the ranks count under different outcome rules, {rules}; construct all with one rule")
        if len(set(digests)) > 1:
            raise ValueError(
                f"the ranks did not start from equal counts: without the new counts, theirs add up to {commons}, with "
                f"digests {digests}; load one snapshot on all ranks, or none"
            )
        peers = [entries for peer, entries in enumerate(entries_of) if peer != rank]
        if not peers:
            return
        entries = sort_entries(CountEntries(*(torch.cat(columns) for columns in zip(*peers, strict=True))))
        check_total(self.table.total(), entries.counts, "sync")
        self.table.add(_to_device(entries, self.device), pending=False)
        self._synced = digest(entries, self._synced)

    def _flat_keys(self, question_keys: Tensor, outcome_keys: Tensor) -> tuple[Tensor, Tensor]:
        check_tensor("question_keys", question_keys, (torch.int64,), self.device)
        check_tensor("outcome_keys", outcome_keys, (torch.int64,), self.device)
        if question_keys.shape == outcome_keys.shape[:-1] and outcome_keys.ndim > 0:
            question_keys = question_keys.unsqueeze(-1).expand_as(outcome_keys)
        if question_keys.shape != outcome_keys.shape:
            raise ValueError(
                "question_keys must have the shape of outcome_keys or one key for each of its rows, here "
                f"{tuple(outcome_keys.shape)} or {tuple(outcome_keys.shape[:-1])}, got {tuple(question_keys.shape)}"
            )
        return aligned(question_keys.reshape(-1)), aligned(outcome_keys.reshape(-1))


def _with_index(device: torch.device) -> torch.device:
    """Return the device as its tensors name it."""
    if device.type == "cuda" and device.index is None and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _check_capacity(capacity: int) -> int:
    if isinstance(capacity, bool) or not isinstance(capacity, int):
        raise TypeError(f"capacity must be an int, got {type(capacity).__name__}")
    if not 1 <= capacity <= MAX_CAPACITY:
        raise ValueError(f"capacity must be from 1 to 2**40 slots, got {capacity}")
    return capacity


def _to_device(entries: CountEntries, device: torch.device | str) -> CountEntries:
    return CountEntries(*(column.to(device) for column in entries))
