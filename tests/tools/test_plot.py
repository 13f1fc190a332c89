"""Pictures of curves: layout, axes, legends."""

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from PIL import Image

from outcome_rl.tools import plot
from outcome_rl.tools.plot import PALETTE, Line, Panel, over_k, png, svg


def colours(svg: str) -> set[str]:
    ET.fromstring(svg)
    return set(re.findall(r"(?:stroke|fill): (#\w{6})", svg)) & set(PALETTE)


@pytest.mark.parametrize("ks", [("1",), ("1", "2", "4"), ("1", "2", "3")])
def test_curves_over_k(ks: tuple[str, ...]) -> None:
    found = {"pass_at_k": {k: 0.01 * int(k) for k in ks}, "diff_at_k": {k: float(k) for k in ks}}
    for panel in over_k([(found, Line(colour=0)), (found, Line(colour=2, style="--"))]):
        picture = svg([panel])
        assert colours(picture) == {PALETTE[0], PALETTE[2]}
        for k in ks:
            assert re.search(rf"<text[^>]*>{k}</text>", picture)
    unknown = found | {"pass_at_k": {}}
    assert [panel.title[:6] for panel in over_k([(unknown, Line())])] == ["diff@k"]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures of all charts."""
    figures: list[Figure] = []

    class Kept(Figure):  # matplotlib is not typed
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            figures.append(self)

    monkeypatch.setattr(plot, "Figure", Kept)
    return figures


@pytest.mark.parametrize("values", [(0.0, 0.0), (0.0, 3.0), (1e-9, 2e-6), (5.0, 5.0), (0.25, 0.37), (0.0, 1.0)])
def test_axes_begin_at_zero_and_end_above_the_curve(values: tuple[float, float], drawn: list[Figure]) -> None:
    svg([Panel("", "step", [Line([*enumerate(values)])])])
    bottom, top = drawn[0].axes[0].get_ylim()
    assert bottom == 0
    assert max(values) < top <= max(1.1 * max(values), 1)


def test_values_that_are_not_finite_are_left_out(drawn: list[Figure]) -> None:
    svg([Panel("", "step", [Line([*enumerate((1.0, math.nan, math.inf, 3.0))])])])
    assert list(drawn[0].axes[0].lines[0].get_ydata()) == [1.0, 3.0]


def test_a_picture_has_every_panel_and_one_entry_for_a_method(tmp_path: Path, drawn: list[Figure]) -> None:
    line = Line([(1, 0.2, 0.1, 0.3), (2, 0.4, 0.3, 0.5)], 0, label="ucb")
    png([Panel("a", "step", [line]), *[Panel("b", "k samples", [line], over_k=True)] * 3], tmp_path / "a.png")
    (figure,) = drawn
    assert [axes.get_title(loc="left") for axes in figure.axes[:4]] == ["a", "b", "b", "b"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ucb"]
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.convert("L").getextrema()[0] < 100  # something is drawn


def test_the_name_of_a_file_is_no_formula(tmp_path: Path, drawn: list[Figure]) -> None:
    name = "a$\\frac{b$.jsonl"
    png([Panel(f"{name}: diff@k", "k samples", [Line([(1, 1.0)], 0, label=name)])], tmp_path / "picture.png")
    assert [text.get_text() for text in drawn[-1].legends[0].get_texts()] == [r"a$\frac{b$.jsonl"]
