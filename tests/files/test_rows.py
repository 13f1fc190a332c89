"""Rows of every layout are the same rows, and errors name file, row, field and fix."""

import gzip
import io
import json
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outcome_rl.files.rows import as_text, find, first_field, id_of_row, read_objects

ROWS = [{"id": "a", "n": 1, "inner": {"x": "\u2028 é"}}, {"id": "b", "n": 2, "inner": {"x": "[{"}}]


def json_lines(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def json_array(rows: list[Any]) -> bytes:
    return json.dumps(rows, indent=2).encode()


def parquet(rows: list[Any]) -> bytes:
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file.getvalue()


LAYOUTS = {
    "data.jsonl": json_lines,
    "bom.jsonl": lambda rows: b"\xef\xbb\xbf" + json_lines(rows),
    "array.json": json_array,
    "objects.json": lambda rows: "\n".join(json.dumps(row, indent=2) for row in rows).encode(),
    "bom.json": lambda rows: b"\xef\xbb\xbf \n" + json_array(rows),
    "lines.jsonl.gz": lambda rows: gzip.compress(json_lines(rows)),
    "array.json.gz": lambda rows: gzip.compress(json_array(rows)),
    "table.parquet": parquet,
    "no suffix": parquet,
}


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in read_objects(path)]


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_same_rows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = LAYOUTS[name](ROWS)
    path = tmp_path / name
    path.write_bytes(contents)
    assert rows_of(path) == ROWS
    piped = SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(contents)))
    monkeypatch.setattr(sys, "stdin", piped)
    piped_rows = list(read_objects("-"))
    assert [row for _, row in piped_rows] == ROWS
    assert all(where.startswith("standard input, row ") for where, _ in piped_rows)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_field_of_rows_is_refused_where_no_object_holds_them(name: str, tmp_path: Path) -> None:
    for rows in (ROWS, ROWS[:1]):
        (tmp_path / name).write_bytes(LAYOUTS[name](rows))
        with pytest.raises(ValueError, match=r"no JSON object with rows at 'n'.*--rows"):
            list(read_objects(tmp_path / name, "n"))


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


@given(rows=st.lists(st.dictionaries(TEXT, TEXT | st.integers() | st.none(), max_size=3), max_size=4))
@pytest.mark.parametrize("write", [json_lines, json_array])
def test_any_object_comes_back(
    rows: list[dict[str, Any]], write: Callable[[list[Any]], bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows"
    path.write_bytes(write(rows))
    assert rows_of(path) == rows
    path.write_bytes(gzip.compress(write(rows)))
    assert rows_of(path) == rows


def test_blank_lines_count_and_a_carriage_return_is_no_line_break(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n\n  \n{"b": "x\\r\\ny"}\r\n{}')
    assert [(where.rpartition(" ")[2], row) for where, row in read_objects(path)] == [
        ("1", {"a": 1}),
        ("4", {"b": "x\r\ny"}),
        ("5", {}),
    ]


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b'{}\n{"a": ', r"row 2: .*column 6"),
        (b'{}\n"\xff"', r"row 2: .*0xff.*UTF-8"),
        (b"{}\n" + b"[" * 200_000, r"row 2: "),
        (b'{"a": [{"b": 1, "b": 2}]}', r"row 1: not valid JSON: .*'b' twice"),
        (b"{}\n[1]", r"row 2: .*got list"),
        (b"[{},\n{},\n3]", r"row 3: .*got int"),
        (b"[{},\n{}", r"file: .*line 2 column 3"),
        (b'{\n  "a": 1,\n}', r"array of objects"),
        (gzip.compress(json_lines(ROWS), mtime=0)[:-9], "file: .*gzip .*Write the file again"),
        (b"\x1f\x8bjunk and junk", r"file: .*gzip"),
        (parquet(ROWS)[:-5], r"file: .*parquet"),
    ],
)
def test_unreadable_contents_are_refused(contents: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(contents)
    with pytest.raises(ValueError, match=message):
        rows_of(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        rows_of(tmp_path / "none.jsonl")


def test_fields_of_structs() -> None:
    row = {"reward_model": {"ground_truth": "4"}, "a.b": 1, "text": "x"}
    assert find(row, "reward_model.ground_truth") == "4"
    assert find(row, "a.b") == 1
    assert find(row, "text.length") is None
    assert find(row, "reward_model.style", "none") == "none"


def test_the_first_field_that_is_there_is_taken() -> None:
    row = {"gold": None, "answer": "4"}
    assert first_field(row, ("id", "answer", "gold"), "gold answer", "f, row 1", "") == ("answer", "4")
    assert first_field(row, ("gold", "answer"), "gold answer", "f, row 1", "", nullable=True) == ("gold", None)
    with pytest.raises(ValueError, match=r"f, row 1: field 'gold' \(the role\) is null\. fix"):
        first_field(row, ("gold", "answer"), "role", "f, row 1", "fix")  # the other one may mean something else
    with pytest.raises(ValueError, match=r"f, row 1: lacks 'id' or 'solution' \(the role\); it has .*fix"):
        first_field(row, ("id", "solution"), "role", "f, row 1", "fix")
    with pytest.raises(ValueError, match=r"it has 'text', 'extra_info\.index', 'empty'\. fix"):
        first_field({"text": "x", "extra_info": {"index": 1}, "empty": {}}, ("id",), "id", "f, row 1", "fix")


def test_an_id_is_unique_within_its_data_source() -> None:
    row = {"extra_info": {"index": 7}}
    names = ("id", "extra_info.index")
    assert id_of_row(row, names, "f, row 1", "fix") == ("7", "the column 'extra_info.index'")
    assert id_of_row(row | {"data_source": None}, names, "f, row 1", "fix")[0] == "7"
    found = "gsm8k:7", "extra_info.index with the data source"
    assert id_of_row(row | {"data_source": "gsm8k"}, names, "f, row 1", "fix") == found
    with pytest.raises(ValueError, match=r"f, row 1: field 'id' \(the id\) is empty\. Fill it in"):
        id_of_row({"id": " "}, names, "f, row 1", "fix")


FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)
NUMPY = st.integers(-(2**63), 2**63 - 1).map(np.int64) | FINITE.map(np.float32)


NUMBERS = st.integers() | FINITE | NUMPY | st.decimals(allow_nan=False, allow_infinity=False)


@given(st.text(st.characters(codec="utf-8")) | NUMBERS)
@example(10**400)
def test_text_and_numbers_are_text_as_they_are_written(value: object) -> None:
    assert as_text(value, "id", "id", "f") == str(value)


OTHERS = [
    None,
    True,
    np.True_,
    [],
    {},
    b"1",
    date(2024, 7, 26),
    float("nan"),
    float("inf"),
    np.float32("nan"),
    "\ud800",
]


@pytest.mark.parametrize("value", OTHERS)
def test_other_values_are_no_text(value: object) -> None:
    with pytest.raises(ValueError, match=r"f, row 1: field 'id' \(the id\) must .*\. (Write|Fill)"):
        as_text(value, "id", "id", "f, row 1")
