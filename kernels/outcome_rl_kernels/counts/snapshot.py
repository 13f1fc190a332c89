"""Counted pairs in their order, and count snapshots: files that are equal, byte for byte, for equal counts.

A snapshot is a safetensors file of four int64 tensors (`question_keys`, `outcome_keys`, `counts`, `successes`), sorted
by key, and one metadata entry that holds sorted JSON: with several metadata entries safetensors writes them in an order
that changes from run to run. The JSON has the format's version, the outcome rule, and the SHA-256 of rule and entries,
so that a damaged file is never read as other counts. A fifth tensor, `attached`, may hold bytes that belong to the
counts; the digest is of them too.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as deserialize
from safetensors.torch import save as serialize
from torch import Tensor

from outcome_rl_kernels.backends import aligned
from outcome_rl_kernels.counts.table import CountEntries
from outcome_rl_kernels.whole_files import whole_file

FORMAT_VERSION = 3
# Sums of counts stay below this, so that no count can overflow int64.
MAX_TOTAL = 2**62

_MOST_HEADER = 2**20  # bytes
_METADATA_KEY, _ATTACHED = "outcome_counts", "attached"


def sort_entries(entries: CountEntries) -> CountEntries:
    """Return the entries sorted by (question key, outcome key) as signed numbers, on their device."""
    by_outcome = entries.outcome_keys.argsort(stable=True)
    order = by_outcome[entries.question_keys[by_outcome].argsort(stable=True)]
    return CountEntries(*(column[order] for column in entries))


def snapshot(entries: CountEntries, rule: str, attached: bytes = b"") -> bytes:
    """Return the contents of a snapshot of sorted entries."""
    header = {"format": FORMAT_VERSION, "rule": rule, "sha256": _sha256(entries, rule, attached)}
    tensors = entries._asdict()
    if attached:
        tensors[_ATTACHED] = torch.from_numpy(np.frombuffer(bytearray(attached), np.uint8))
    contents: bytes = serialize(tensors, metadata={_METADATA_KEY: json.dumps(header, sort_keys=True)})
    return contents


def write_snapshot(path: str | os.PathLike[str], entries: CountEntries, rule: str) -> None:
    """Write a snapshot so that `path` holds, at every moment, either the old file or the whole new one."""
    with whole_file(path) as file:
        file.write(snapshot(entries, rule))


def read_snapshot(path: str | os.PathLike[str]) -> tuple[CountEntries, str, bytes]:
    """Read and check a snapshot.

    Returns:
        The entries, the outcome rule that they were counted under, and the attached bytes.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is foreign, damaged, or of an unknown format version.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no count snapshot at {path}")
    try:
        contents, metadata = _contents(Path(path))
        with torch.device("cpu"):
            tensors = deserialize(contents)
        header = _read_header(metadata)
        attached = tensors.pop(_ATTACHED).numpy().tobytes() if _ATTACHED in tensors else b""
        entries = check_entries(tensors, source="its entries")
        if _sha256(entries, header["rule"], attached) != header.get("sha256"):
            raise ValueError("its entries changed after they were saved: their SHA-256 differs")
    except (MemoryError, SafetensorError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is not a count snapshot, or is damaged: {error}. Load another snapshot, such as an older "
            "checkpoint's, or start from new counts"
        ) from error
    return entries, header["rule"], attached


def check_entries(tensors: dict[str, Tensor], source: str) -> CountEntries:
    """Turn stored tensors into entries, contiguous and on the CPU; a ValueError names `source` and the fault."""
    if set(tensors) != set(CountEntries._fields):
        raise ValueError(f"{source}: expected the tensors {sorted(CountEntries._fields)}, got {sorted(tensors)}")
    entries = CountEntries(**tensors)
    for name, column in entries._asdict().items():
        if not isinstance(column, Tensor) or column.dtype != torch.int64 or column.ndim != 1:
            got = f"{column.dtype} of shape {tuple(column.shape)}" if isinstance(column, Tensor) else type(column)
            raise ValueError(f"{source}: {name} must be a 1-D int64 tensor, got {got}")
    entries = CountEntries(*(aligned(column.to("cpu")) for column in entries))
    _check_lengths(entries, source)
    questions, outcomes, counts, successes = entries
    if (counts <= 0).any():
        row = int((counts <= 0).nonzero()[0])
        raise ValueError(f"{source}: counts must be positive, got {int(counts[row])} in entry {row}")
    if (wrong := (successes < 0) | (successes > counts)).any():
        row = int(wrong.nonzero()[0])
        found = f"{int(successes[row])} of {int(counts[row])} in entry {row}"
        raise ValueError(f"{source}: successes must be from 0 to counts, got {found}")
    in_order = (questions[1:] > questions[:-1]) | ((questions[1:] == questions[:-1]) & (outcomes[1:] > outcomes[:-1]))
    if not in_order.all():
        row = int((~in_order).nonzero()[0]) + 1
        duplicate = bool(questions[row] == questions[row - 1]) and bool(outcomes[row] == outcomes[row - 1])
        fault = "repeats the key before it" if duplicate else "is not in ascending key order"
        raise ValueError(f"{source}: entry {row} {fault}")
    if float(counts.double().sum()) >= MAX_TOTAL:
        raise ValueError(f"{source}: the counts would add up to 2**62 or more, which does not fit the table")
    return entries


def check_rule(found: str, expected: str, source: str) -> None:
    """Raise a ValueError unless counts made under the rule `found` may be used under the rule `expected`."""
    if found != expected:
        raise ValueError(
            f"{source}: the counts were made under outcome rule {found!r}, but rule {expected!r} is in force. Keys of "
            "different rules do not name the same outcomes: use the outcome or the version "
            "that made these, or start from new counts."
        )


def _check_lengths(entries: CountEntries, source: str) -> None:
    lengths = {name: len(column) for name, column in entries._asdict().items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{source}: the tensors must have one length, got {lengths}")


def _sha256(entries: Iterable[Tensor], rule: str, attached: bytes) -> str:
    found = hashlib.sha256(json.dumps(rule).encode())
    for column in entries:
        found.update(column.numpy().astype("<i8", copy=False).data)
    found.update(attached)
    return found.hexdigest()


def _contents(path: Path) -> tuple[bytes, dict[str, Any]]:
    """Read a safetensors file and its metadata once, since a writer may replace it in between.

    A stranger's file may be larger than the memory.
    """
    with path.open("rb") as file:
        start = file.read(8)
        header = file.read(min(int.from_bytes(start, "little"), _MOST_HEADER))
        try:
            entries = json.loads(header)
            metadata = entries.pop("__metadata__", None) or {}
            ends = [one["data_offsets"][1] for one in entries.values()]
            size = len(start) + len(header) + max(ends, default=0)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"its header is no safetensors header ({type(error).__name__})") from error
        found = os.fstat(file.fileno()).st_size
        if found != size:
            raise ValueError(f"it has {found:,} bytes, and its header names {size:,}")
        if hasattr(os, "sysconf") and size > (memory := os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")):
            raise ValueError(f"it has {size:,} bytes, more than the memory of this machine, {memory:,}")
        file.seek(0)
        return file.read(), metadata


def _read_header(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return what the metadata of a snapshot say."""
    if _METADATA_KEY not in metadata:
        raise ValueError(f"a safetensors file without {_METADATA_KEY!r} metadata")
    try:
        header = json.loads(metadata[_METADATA_KEY])
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"the {_METADATA_KEY!r} metadata is not JSON: {error}") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT_VERSION:
        found = repr(header.get("format") if isinstance(header, dict) else header)
        raise ValueError(f"snapshot format {found:.40} is unknown; this version reads format {FORMAT_VERSION}")
    if not isinstance(header.get("rule"), str):
        raise ValueError(f"the outcome rule must be a string, got {header.get('rule')!r}")
    return header
