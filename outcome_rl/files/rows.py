"""Rows of a user's files, and their fields under the usual names.

A file is JSON lines, one JSON array of objects or an object that holds one, parquet, CSV, or a zip of JSON, as Inspect
writes; JSON may be compressed by gzip, and `-` is standard input. The contents decide the format, except for CSV
(`.csv`, `.tsv`). A folder is shards: all files of the suffix that most of its files have.
"""

import csv
import gzip
import io
import json
import math
import re
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from decimal import Decimal
from itertools import chain, islice
from numbers import Integral, Real
from pathlib import Path
from typing import Any, BinaryIO, cast

from outcome_rl.files.bounds import LINE, UNPACKED, WHOLE, bounded_lines, too_large
from outcome_rl.files.formats import EITHER, NAMES, is_usual, snake
from outcome_rl.files.run_rows import NO_SAMPLES

# Usual fields of question ids, gold answers and prompts, tried in this order. Those with a dot are verl's.
ID_COLUMNS = ("id", "question_id", "unique_id", "extra_info.index")
ANSWER_COLUMNS = ("answer", "gold", "reward_model.ground_truth", "solution", "ground_truth", "target")
PROMPT_COLUMNS = ("problem", "question", "prompt")

SUFFIXES = (".jsonl", ".json", ".parquet", ".gz", ".csv", ".tsv")
_DELIMITERS = {".csv": ",;\t|", ".tsv": "\t"}  # those that a header may have
_LAYOUT = "Expected one JSON object per line, or one JSON array of objects"
# Fields of an object that hold its rows.
_WRAPPERS = (
    *("results", "rows", "data", "examples", "outputs", "samples", "request_states", "records", "instances"),
    *("predictions", "details", "eval"),
)
_BOM = b"\xef\xbb\xbf"
_MISSING = object()
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_objects(path: str | Path, rows_at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every row of a file after its location for errors.

    Rows are numbered from 1: lines of a file of JSON lines, blank ones included, and otherwise items.

    Args:
        path: UTF-8 JSON lines, a JSON array, or a JSON object that holds rows (`rows_of`), with or without a byte order
            mark, plain or gzipped; parquet; "-", any of these on standard input; UTF-8 CSV with a header, in which
            cells that begin with a bracket are JSON; a zip of JSON files; or a folder of such files.
        rows_at: field of a JSON object that holds its rows; a dot leads into a struct.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the contents are none of these, or a row is no object.
    """
    piped = str(path) == "-"
    name = "standard input" if piped else str(path)
    if Path(path).is_dir():
        yield from chain.from_iterable(read_objects(one, rows_at) for one in _shards(Path(path)))
        return
    with nullcontext(sys.stdin.buffer) if piped else Path(path).open("rb") as file:
        start = cast(io.BufferedReader, file).peek(4)
        rows: Iterator[tuple[int, Any]]
        is_parquet = start.startswith(b"PAR1") or Path(path).suffix == ".parquet"
        if rows_at and (is_parquet or Path(path).suffix in _DELIMITERS):
            _wrapped([], name, rows_at)  # refuses it
        if is_parquet:
            rows = enumerate(_parquet_values(file, name), start=1)
        elif Path(path).suffix in _DELIMITERS:
            rows = _cells(file, name, _DELIMITERS[Path(path).suffix])
        elif start.startswith(b"PK\x03\x04"):
            rows = enumerate(_archived(file, name, rows_at), start=1)
        else:
            is_zipped = start.startswith(b"\x1f\x8b")
            lines = _unzipped(file, name) if is_zipped else bounded_lines(cast(BinaryIO, file), name)
            rows = _json_values(lines, name, rows_at)
        for number, row in rows:
            where = f"{name}, row {number}"
            if not isinstance(row, dict):
                raise ValueError(f"{where}: expected a JSON object; got {type(row).__name__}. {_LAYOUT}")
            yield where, row


def find(row: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """Return a field, or after a dot a field of a struct, such as verl's `reward_model.ground_truth`.

    A dot also leads into a list of objects, to the list of their fields. `*` is the first field of a struct.
    """
    if name in row:
        return row[name]
    outer, _, inner = name.partition(".")
    value = next(iter(row.values()), _MISSING) if outer == "*" else row.get(outer, _MISSING)
    if not inner or value is _MISSING:
        return default if value is _MISSING else value
    if isinstance(value, Mapping):
        return find(value, inner, default)
    if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        found = [find(one, inner, _MISSING) for one in value]
        return default if any(one is _MISSING for one in found) else found
    return default


def first_field(
    row: Mapping[str, Any], names: Sequence[str], role: str, where: str, fix: str, *, nullable: bool = False
) -> tuple[str, Any]:
    """Return the name and the value of the first of some fields that a row has; `nullable` lets the value be null.

    The error names `where` the row is, the `role` of the field, and the `fix`.

    Raises:
        ValueError: the row has none of them, or null.
    """
    found = ((name, find(row, name, _MISSING)) for name in names)
    name, value = next((one for one in found if one[1] is not _MISSING), ("", None))
    if value is None and name and not nullable:
        raise ValueError(f"{where}: field {name!r} (the {role}) is null. {fix}")
    if not name:
        asked = " or ".join(map(repr, dict.fromkeys(names)))
        raise ValueError(f"{where}: lacks {asked} (the {role}); it has {some_names(row)}. {fix}")
    return name, value


def some_names(row: Mapping[str, Any]) -> str:
    """Return the names of at most ten fields, for an error; fields of structs, and of the objects in a list, come
    after a dot.
    """
    names: list[str] = []
    for name, value in row.items():
        inside = value[0] if isinstance(value, list) and value else value
        names += [f"{name}.{inner}" for inner in inside] if isinstance(inside, Mapping) and inside else [name]
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(repr(name[:80]) for name in names[:10]) + more if names else "no fields"


def field_of_rows(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> tuple[str, ...]:
    """Return the first of some fields that any row has, one with a value before one of nulls; all if none has one.

    So the rows of a source have one rule, whichever comes first.
    """
    for empty in ((_MISSING, None), (_MISSING,)):
        for name in names:
            if any(all(find(row, name, _MISSING) is not one for one in empty) for row in rows):
                return (name,)
    return (*names,)


def one_origin(origins: Iterable[tuple[str, str]]) -> str:
    """Return the origin that the ids of all rows have, from the location and the origin of each.

    Raises:
        ValueError: two rows differ, because only one of them has a `data_source`, say.
    """
    first_place, first = "", ""
    for place, origin in origins:
        first_place, first = first_place or place, first or origin
        if origin != first:
            raise ValueError(
                f"{place}: the id is from {origin}, and that of {first_place} from {first}. Give all rows a "
                "data_source, or none"
            )
    return first


def id_of_row(row: Mapping[str, Any], names: Sequence[str], where: str, fix: str) -> tuple[str, str]:
    """Return the id of a row's question, from the first of some fields that the row has, and its origin in words.

    In verl's format, an id is unique only within its `data_source`, which is then prefixed to the id with a colon.

    Raises:
        ValueError: the row has none of the fields, or it is not text or a number, or empty.
    """
    name, value = first_field(row, names, "id", where, fix)
    text, source = filled_text(value, name, "id", where), row.get("data_source")
    return (text if source is None else f"{source}:{text}"), id_source(name, within_source=source is not None)


def id_source(name: str | None, *, within_source: bool) -> str:
    """Describe the source of ids: a field, alone or with the `data_source`, or the hash of the prompt."""
    if not name:
        return "the hash of the prompt"
    return f"{name} with the data source" if within_source else f"the column {name!r}"


def filled_text(value: Any, name: str, role: str, where: str, fix: str = "") -> str:
    """As `as_text`, for a field that must not be empty; the error ends with `fix`."""
    text = as_text(value, name, role, where)
    if not text.strip():
        raise ValueError(f"{where}: field {name!r} (the {role}) is empty. Fill it in, or leave out the row{fix}")
    return text


def as_text(value: Any, name: str, role: str, where: str) -> str:
    """Return a value that is text or a number, NumPy's and decimal ones included, as text, as it is written.

    Raises:
        ValueError: it is neither, not finite, or holds half of a character.
    """
    text, fault = str(value), ""
    if isinstance(value, bool) or not isinstance(value, str | Real | Decimal):
        fix = "Fill it in, or leave out the row" if value is None else "Write it as text"
        fault = f"text or a number; got {'null' if value is None else type(value).__name__}. {fix}"
    elif not isinstance(value, str | Integral) and not math.isfinite(value):
        fault = f"finite; got {value}. Write null if there is none"
    elif not text.isascii() and _SURROGATE.search(text):
        fault = "whole characters; it holds a lone surrogate, half of one. Write the text as UTF-8"
    if fault:
        raise ValueError(f"{where}: field {name!r} (the {role}) must be {fault}")
    return text


def _json_values(lines: Iterable[bytes], name: str, rows_at: str) -> Iterator[tuple[int, Any]]:
    """Yield number and value of every line that is not blank, or of every item if the first one begins an array."""
    numbered = enumerate(lines, start=1)  # bytes: text mode would also break lines at a bare carriage return
    filled = ((number, text) for number, line in numbered if (text := line.strip().removeprefix(_BOM).strip()))
    for number, text in filled:
        if text.startswith(b"[") or text == b"{":  # an array, or an object over several lines
            content = bytearray(text + b"\n")
            for _, line in numbered:
                content += line
                if len(content) > WHOLE:
                    raise too_large(name, "JSON that is no JSON lines", WHOLE, "Write one JSON object per line")
            yield from enumerate(_wrapped(_parsed(bytes(content), name), name, rows_at), start=1)
            return
        values, later = _parsed(text, f"{name}, row {number}"), list(islice(filled, 1))
        yield from enumerate(_wrapped(values, name, rows_at, alone=not later), start=number)
        for number, text in chain(later, filled):
            yield from ((number, value) for value in _parsed(text, f"{name}, row {number}"))


def _wrapped(values: list[Any], name: str, rows_at: str, *, alone: bool = True) -> list[Any]:
    """Return the rows in JSON values: several are rows, and so is one that is not alone, or without any."""
    alone = alone and len(values) == 1
    if not alone and not rows_at:
        return values
    value = values[0] if alone else None
    if rows_at:
        value = find(value, rows_at) if isinstance(value, dict) else None
        if not isinstance(value, list | dict):
            raise ValueError(
                f"{name}: is no JSON object with rows at {rows_at!r}. Leave out --rows, or name the field of the rows"
            )
    return rows_of(value) or (value if isinstance(value, list) else [value])


def rows_of(value: Any) -> list[Any]:
    """Return the rows in a JSON value, none if it is a row.

    These are the items of a list, the rows that a field such as `results` holds, maybe in a struct, a table of
    `columns` and `data`, and a map from ids to rows or to lists of samples, or from names to such maps.
    """
    if isinstance(value, list):
        lists = bool(value) and all(isinstance(one, list) for one in value)
        return [{"id": number, "samples": one} for number, one in enumerate(value)] if lists else value
    if not isinstance(value, dict):
        return []
    inside = [one for one in value.values() if isinstance(one, list) and one and isinstance(one[0], dict)]
    asked = [one for one in inside if not one[0].keys().isdisjoint(PROMPT_COLUMNS)]
    if not value.keys().isdisjoint((*ID_COLUMNS, *PROMPT_COLUMNS)):
        return asked[0] if len(asked) == 1 else []
    columns, data = value.get("columns"), value.get("data")
    if isinstance(columns, list) and isinstance(data, list):
        return [dict(zip(columns, row, strict=True)) for row in data]
    for name in _WRAPPERS:
        rows = rows_of(value.get(name))
        if rows and all(isinstance(row, dict) for row in rows):
            return rows
    if len(inside) == 1 and sum(map(is_usual, inside[0][0])) > 1:
        return inside[0]
    return _by_id(value) if len(value) > 1 else []


def _by_id(value: dict[str, Any], prefix: str = "") -> list[Any]:
    """Return the rows of a map from ids to rows or to lists of samples, or from names to such maps."""
    inside: dict[str, Any] = {key: one for key, one in value.items() if isinstance(one, dict | list)}
    value = inside if 2 * len(inside) > len(value) + 1 else value  # beside facts such as a type
    kinds = {type(one) for one in value.values()}
    if kinds == {list} and all(map(_is_asked, chain.from_iterable(value.values()))):  # rows of several tasks
        return [{"data_source": f"{prefix}{key}", **row} for key, rows in value.items() for row in rows]
    if kinds == {list} or (kinds == {str} and not any(map(is_usual, value))):
        return [{"id": f"{prefix}{key}", "samples": samples} for key, samples in value.items()]
    if kinds != {dict}:
        return []
    if not any(map(is_usual, chain.from_iterable(value.values()))):
        inner = [_by_id(one, f"{prefix}{key}/") for key, one in value.items()]
        return [*chain.from_iterable(inner)] if all(inner) else []
    first = next(iter(value.values()))
    if any(2 * len(one.keys() & first.keys()) <= len(one) for one in value.values()):
        return []
    return [{"id": f"{prefix}{key}", **row} for key, row in value.items()]


def _is_asked(row: Any) -> bool:
    """Whether a value is a row with a question and an answer to compare with, and no sample."""
    names = {snake(name) for name in row} if isinstance(row, dict) else set()
    asked, known = (*NAMES["id"], *NAMES["prompt"]), {*NAMES["gold"]} - {*EITHER}
    return not names.isdisjoint(asked) and not names.isdisjoint(known)


def _archived(file: BinaryIO, name: str, rows_at: str) -> Iterator[Any]:
    """Yield the rows in the JSON files of a zip, of Inspect's logs the samples."""
    try:
        with zipfile.ZipFile(file if file.seekable() else io.BytesIO(file.read(WHOLE))) as archive:
            inside = [one for one in archive.namelist() if one.endswith((".json", ".jsonl"))]
            for one in [one for one in inside if one.startswith("samples/")] or inside:
                with _member(archive, one) as member:
                    lines = bounded_lines(member, name, UNPACKED)
                    yield from (row for _, row in _json_values(lines, f"{name}/{one}", rows_at))
    except (zipfile.BadZipFile, NotImplementedError, zlib.error) as error:
        raise ValueError(f"{name}: not a readable zip: {error}. Write the log as JSON") from error


def _member(archive: zipfile.ZipFile, name: str) -> BinaryIO:
    """Open a file of a zip; zstandard, which Inspect writes, is unpacked by pyarrow."""
    info = archive.getinfo(name)
    if info.compress_type != 93:  # zstandard
        return cast(BinaryIO, archive.open(info))
    import pyarrow

    info.compress_type, info.file_size = zipfile.ZIP_STORED, info.compress_size
    del info.CRC  # of the unpacked contents
    return io.BufferedReader(pyarrow.input_stream(archive.open(info), compression="zstd"))


def _shards(folder: Path) -> list[Path]:
    """Return the files of a folder that hold rows, in the order of the numbers in their names."""
    named = [one for one in folder.iterdir() if one.suffix in (*SUFFIXES, ".eval") and one.name not in NO_SAMPLES]
    files = [one for one in named if one.is_file()]
    if any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
        raise ValueError(f"{folder}: is a data set of `datasets`. Write it by its `to_parquet`")
    if not files:
        raise ValueError(f"{folder}: has no files of rows, which end in {', '.join(SUFFIXES)} or .eval")
    ((suffix, _),) = Counter(sorted(one.suffix for one in files)).most_common(1)
    parts = {one: re.split(r"(\d+)", one.name) for one in files if one.suffix == suffix}
    return sorted(parts, key=lambda one: [int(part) if part.isdigit() else part for part in parts[one]])


def _cells(file: BinaryIO, name: str, delimiters: str) -> Iterator[tuple[int, Any]]:
    """Yield number and row of a table with a header; a cell that begins with a bracket is JSON."""
    csv.field_size_limit(LINE)
    header = cast(io.BufferedReader, file).peek(1 << 16).split(b"\n")[0]
    delimiter = max(delimiters, key=lambda one: header.count(one.encode()))
    raw = bounded_lines(file, name)
    lines = (line.decode("utf-8") for line in chain((line.removeprefix(_BOM) for line in islice(raw, 1)), raw))
    reader = csv.DictReader(lines, delimiter=delimiter, strict=True)
    try:
        if twice := [one for one, number in Counter(reader.fieldnames or ()).items() if number > 1]:
            raise ValueError(f"{name}: the header has {twice[0]!r} twice. Rename one of the columns")
        for number, row in enumerate(reader, start=2):  # the header is row 1
            if None in row or None in row.values():
                raise ValueError(
                    f"{name}, row {number}: expected {len(reader.fieldnames or ())} cells, as in the header. Quote "
                    "cells that hold the delimiter"
                )
            yield number, {key: _cell(cell) for key, cell in row.items()}
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(
            f"{name}: not valid CSV: {error}. Write it as UTF-8 with quoted cells, or as parquet"
        ) from error


def _cell(text: str) -> Any:
    """Return a cell; text that only looks like JSON, such as an interval, stays text."""
    if not text.startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def shards_as_one(files: Sequence[Path]) -> dict[str, list[Path]]:
    """Group files that are shards of one run: `-of-` in numbered names, or three and more padded numbers."""
    if len({*files}) < len(files):
        raise ValueError(f"{max(files, key=files.count)} is given twice; leave it out once")
    names = {file: re.sub(r"(?<!\d)(0\d{2,}|\d{5})(?!\d)", "*", str(file)) for file in files}
    counts = Counter(names.values())
    groups: dict[str, list[Path]] = {}
    for file, name in names.items():
        groups.setdefault(name if counts[name] > 2 or "*-of-*" in name else str(file), []).append(file)
    return groups


def _parsed(content: bytes, where: str) -> list[Any]:
    """Return the JSON values that follow each other in a text."""
    values: list[Any] = []
    try:
        text, end = content.decode("utf-8").strip(), 0
        while end < len(text):
            value, end = _DECODER.raw_decode(text, end)
            values.append(value)
            end += len(cast(re.Match[str], _SPACE.match(text, end))[0])
        return values
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not valid JSON: {error}. {_LAYOUT}, in UTF-8") from error


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"an object has the field {name!r} twice; leave one out")
    return fields


_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder(object_pairs_hook=_without_repeats)


def _unzipped(file: BinaryIO, name: str) -> Iterator[bytes]:
    try:
        yield from bounded_lines(cast(BinaryIO, gzip.GzipFile(fileobj=file)), name, total=UNPACKED)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{name}: cut short or damaged gzip data: {error}. Write the file again") from error


def _parquet_values(file: BinaryIO, name: str) -> Iterator[Any]:
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(file if file.seekable() else io.BytesIO(file.read(WHOLE)))
        groups = (table.metadata.row_group(number) for number in range(table.metadata.num_row_groups))
        if sum(group.total_byte_size for group in groups) > UNPACKED:
            raise too_large(name, "its unpacked contents", UNPACKED, "Divide it into several files")
        for batch in table.iter_batches():
            yield from batch.to_pylist()
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"{name}: not valid parquet: {error}. Write the file again") from error
