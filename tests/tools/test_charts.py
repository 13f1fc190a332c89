"""Charts of complete, short and incomplete records."""

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from outcome_rl.tools import charts
from outcome_rl.tools.charts import (
    PALETTE,
    TRAINING,
    Line,
    Panel,
    comparison_charts,
    evaluation_charts,
    png,
    training_charts,
)


def metrics(steps: int) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "outcomes/correct_rate": step / 10,
            "exploration/distinct_answers": 2.0,
            # Missing once all is solved, or where no response is correct.
            **({"exploration/distinct_answers_unsolved": 3.0} if step < 3 else {}),
            **({"entropy/correct": 0.1} if step == 2 else {}),
            "entropy/incorrect": 0.2,
            **{f"time/{part}_s": 0.5 for part in ("rollout", "outcomes", "reference", "update", "step")},
        }
        for step in range(1, steps + 1)
    ]


def colours(svg: str) -> set[str]:
    ET.fromstring(svg)
    return set(re.findall(r"(?:stroke|fill): (#\w{6})", svg)) & set(PALETTE)


def test_a_run_has_a_chart_of_each_metric() -> None:
    charts = training_charts([metrics(50)])
    assert list(charts) == [
        "Correct responses of the batch",
        "Distinct answers per question so far",
        "Token entropy (nats)",
        "Time of a step (s)",
    ]
    assert colours(charts["Correct responses of the batch"]) == {PALETTE[0]}
    assert colours(charts["Token entropy (nats)"]) == set(PALETTE[:2])
    assert colours(charts["Time of a step (s)"]) == set(PALETTE[:3])


def test_runs_have_a_colour_each() -> None:
    charts = training_charts([metrics(5), metrics(3), []])
    for title in ("Correct responses of the batch", "Token entropy (nats)", "Time of a step (s)"):
        assert colours(charts[title]) == set(PALETTE[:2]), title


def test_no_records_are_no_charts() -> None:
    assert training_charts([[]]) == {}


def row(step: int, ks: tuple[str, ...]) -> dict[str, Any]:
    at_k = {k: 0.01 * int(k) + step / 100 for k in ks}
    return {"step": step, "dataset": "a", "n_questions": 8, "pass_at_k": at_k, "diff_at_k": at_k}


@pytest.mark.parametrize("ks", [("1",), ("1", "2", "4"), ("1", "2", "3")])
def test_comparison(ks: tuple[str, ...]) -> None:
    for svg in comparison_charts([(0, row(0, ks), row(5, ks)), (2, row(0, ks), row(9, ks))]).values():
        assert colours(svg) == {PALETTE[0], PALETTE[2]}
        for k in ks:
            assert re.search(rf"<text[^>]*>{k}</text>", svg)


@pytest.mark.parametrize("ks", [("1",), ("1", "2", "4")])
def test_evaluations_over_the_steps(ks: tuple[str, ...]) -> None:
    charts = evaluation_charts([[row(step, ks) for step in (0, 2, 4)], []])
    assert list(charts) == list(dict.fromkeys(["pass@1", f"pass@{ks[-1]}", f"diff@{ks[-1]}"]))
    assert all(colours(svg) for svg in charts.values())


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures of all charts."""
    figures: list[Figure] = []

    class Kept(Figure):  # matplotlib is not typed
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            figures.append(self)

    monkeypatch.setattr(charts, "Figure", Kept)
    return figures


def check_layout(figure: Figure) -> None:
    """Check that every text is inside the figure, no two overlap, and no multiplier stands apart."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    (axes,) = figure.axes
    assert [axis.get_offset_text().get_text() for axis in (axes.xaxis, axes.yaxis)] == ["", ""]
    boxes = {}
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        room = 1e-9 * (high - low)
        ticks = zip(axis.get_majorticklocs(), axis.get_ticklabels(), strict=True)
        labels = [label for place, label in ticks if low - room <= place <= high + room]  # others are not drawn
        assert labels, name
        boxes[name] = [label.get_window_extent(renderer) for label in labels]
        for first, second in pairwise(boxes[name]):
            assert not first.overlaps(second), name
    legend = axes.get_legend()
    more = [axes.xaxis.label.get_window_extent(renderer)]
    if legend is not None:
        more.append(legend.get_window_extent(renderer))
        assert more[-1].y0 >= axes.get_window_extent(renderer).y1 - 1  # above the data
    for box in [*boxes["x"], *boxes["y"], *more]:
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1


def every_metric(steps: list[int], value: Callable[[int], float]) -> list[dict[str, Any]]:
    names = {name for quantities in TRAINING.values() for name in quantities}
    return [{"step": step, **dict.fromkeys(names, value(step))} for step in steps]


FEW = ("Distinct answers in a group", "KL to the base policy (nats per token)")  # the widest legend, and none


@pytest.mark.parametrize(
    ("scale", "steps"),
    [
        (0.0, [1]),
        (1.9e-6, [1, 250_000]),
        (1e-4, [1_000_001, 1_000_002, 1_000_005]),
        (150_000.0, [999, 1000]),
    ],
)
def test_no_text_is_cut_off_at_any_scale(
    scale: float, steps: list[int], drawn: list[Figure], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "TRAINING", {title: TRAINING[title] for title in FEW})
    training_charts([every_metric(steps, lambda step: scale * (1 + math.sin(step) / 3))])
    training_charts([every_metric(steps, lambda step: scale), every_metric(steps, lambda step: -scale)])
    for figure in drawn:
        check_layout(figure)
    assert len(drawn) == 2 * 2


@pytest.mark.parametrize(("largest", "scale"), [(1, 0.0), (1024, 0.5)])
def test_no_text_is_cut_off_over_k(largest: int, scale: float, drawn: list[Figure]) -> None:
    ks = [2**i for i in range(11) if 2**i <= largest]
    rows = [
        {
            "step": step,
            "pass_at_k": {str(k): scale for k in ks},
            "diff_at_k": {str(k): scale * k for k in ks},
        }
        for step in (0, 1, 2)
    ]
    comparison_charts([(0, rows[0], rows[1])])
    evaluation_charts([rows])
    for figure in drawn:
        check_layout(figure)


def first_with_lines(drawn: list[Figure]) -> Any:
    """Return the axes of the first chart that has lines."""
    return next(figure.axes[0] for figure in drawn if figure.axes[0].lines)


@pytest.mark.parametrize(
    ("rates", "top"), [((0.0, 0.0), 1), ((0.3, 0.9), 1), ((0.0, 1.0), 1), ((0.11, 0.2), 1), ((0.0, 0.03), 0.1)]
)
def test_rates_start_at_zero_and_end_at_one(rates: tuple[float, float], top: float, drawn: list[Figure]) -> None:
    training_charts([[{"step": i, "outcomes/correct_rate": rate} for i, rate in enumerate(rates)]])
    assert first_with_lines(drawn).get_ylim() == (0, top)


@pytest.mark.parametrize("values", [(0.0, 0.0), (0.0, 3.0), (1e-9, 2e-6), (5.0, 5.0)])
def test_values_that_cannot_be_negative_have_no_negative_axis(values: tuple[float, float], drawn: list[Figure]) -> None:
    training_charts([[{"step": i, "actor/kl": value} for i, value in enumerate(values)]])
    bottom, top = first_with_lines(drawn).get_ylim()
    assert bottom >= 0
    assert top > max(values)


def test_values_that_are_not_finite_are_left_out(drawn: list[Figure]) -> None:
    values = (1.0, math.nan, math.inf, 3.0)
    training_charts([[{"step": i, "actor/kl": value} for i, value in enumerate(values)]])
    assert list(first_with_lines(drawn).lines[0].get_ydata()) == [1.0, 3.0]


def test_a_picture_has_every_panel_and_one_entry_for_a_method(tmp_path: Path, drawn: list[Figure]) -> None:
    line = Line([(1, 0.2, 0.1, 0.3), (2, 0.4, 0.3, 0.5)], 0, label="ucb")
    png([Panel("a", "step", [line]), *[Panel("b", "k samples", [line], over_k=True)] * 3], tmp_path / "a.png")
    (figure,) = drawn
    assert [axes.get_title(loc="left") for axes in figure.axes[:4]] == ["a", "b", "b", "b"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ucb"]
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.convert("L").getextrema()[0] < 100  # something is drawn


def test_the_name_of_a_file_is_no_formula(tmp_path: Path, drawn: list[Figure]) -> None:
    png([Panel("diff@k", "k samples", [Line([(1, 1.0)], 0, label=r"a$\frac{b$.jsonl")])], tmp_path / "picture.png")
    assert [text.get_text() for text in drawn[-1].legends[0].get_texts()] == [r"a$\frac{b$.jsonl"]
