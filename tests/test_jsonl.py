"""The reader of JSON lines: what it yields, and what its errors say."""

from pathlib import Path

import pytest

from outcome_rl.jsonl import read_jsonl


def read(path: Path) -> list[tuple[int, object]]:
    return list(read_jsonl(path, lambda number: f"line {number}"))


def test_blank_lines_count_and_a_carriage_return_is_no_line_break(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n\n  \n"x\\r\\ny"\r\n[3]')
    assert read(path) == [(1, {"a": 1}), (4, "x\r\ny"), (5, [3])]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"a": ', r"line 2: not valid JSON: Expecting value \(column 6\)"),
        (b'"\xff"', "line 2: not readable as JSON: .*can't decode byte 0xff"),
        (b"[" * 200_000, "line 2: not readable as JSON: "),
    ],
)
def test_errors_say_where(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"1\n" + line + b"\n")
    with pytest.raises(ValueError, match=message):
        read(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none.jsonl")
