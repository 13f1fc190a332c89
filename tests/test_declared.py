"""Values of files, checked against declared types."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import pytest

from outcome_rl.declared import check_types


class Point(NamedTuple):
    name: str
    at: int


@dataclass
class Line:
    points: list[Point]
    colours: dict[str, float | None]
    tags: set[str]


class File(TypedDict):
    version: int
    lines: list[Line]
    other: NotRequired[dict[int, Any]]
    mode: NotRequired[Literal["a", "b"] | list[float]]
    pair: NotRequired[tuple[int, float]]


LINE = Line([Point("a", 1)], {"ink": None, "paper": 0.5}, {"x"})


@pytest.mark.parametrize(
    "good",
    [
        {"version": 1, "lines": []},
        {"version": -(2**63), "lines": [LINE], "other": {3: ()}},
        {"version": 1, "lines": [], "mode": "b", "pair": (1, 0.5)},
        {"version": 1, "lines": [], "mode": [1, 0.5], "pair": [1, 2]},
    ],
)
def test_what_was_declared_is_accepted(good: Any) -> None:
    check_types("file", [good, good], File)


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (None, "file must be a mapping, .*; got NoneType"),
        ({"version": 1}, "file lacks 'lines'"),
        ({"version": True, "lines": []}, "file.version must be an integer; got bool"),
        ({"version": 2**63, "lines": []}, "file.version must fit into 64 bits"),
        ({"version": 1.0, "lines": []}, "file.version must be an integer; got float"),
        ({"version": 1, "lines": [], "other": None}, "file.other must be a mapping, .*; got NoneType"),
        ({"version": 1, "lines": [], "other": {"3": 1}}, "file.other, a key, must be an integer; got str"),
        ({"version": 1, "lines": [], "mode": "c"}, "file.mode must be one of 'a', 'b'; got 'c'"),
        ({"version": 1, "lines": [], "mode": ["c"]}, "file.mode must be a number; got str"),
        ({"version": 1, "lines": [], "mode": 1}, "file.mode must be one of 'a', 'b' or a list of numbers; got int"),
        ({"version": 1, "lines": [], "pair": [1]}, "file.pair must be 2 integers; got 1"),
        ({"version": 1, "lines": [], "pair": (True, 1)}, "file.pair must be an integer; got bool"),
        ({"version": 1, "lines": [LINE, 3]}, "file.lines must be a Line; got int"),
        ({"version": 1, "lines": [Line([("a", 1)], {}, set())]}, "file.lines.points must be a Point; got tuple"),
        (
            {"version": 1, "lines": [Line([Point("a", "1")], {}, set())]},
            "file.lines.points.at must be an integer; got str",
        ),
        (
            {"version": 1, "lines": [Line([], {"a": "b"}, set())]},
            "file.lines.colours must be a number or null; got str",
        ),
        ({"version": 1, "lines": [Line([], {}, {1})]}, "file.lines.tags must be a string; got int"),
    ],
)
def test_what_was_not_is_named_with_its_place(bad: Any, named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}$"):
        check_types("file", [bad], File)
