"""Output of a run on a terminal, in a file, at 80 columns, and with hostile text."""

import io
import re
from collections.abc import Callable
from typing import Any, TextIO

import pytest
from rich.console import Console

from outcome_rl.grpo.run import display as display_module
from outcome_rl.grpo.run.display import Display

ROW = {
    "outcomes/correct_rate": 0.25,
    "exploration/solved_fraction": 0.5,
    "exploration/distinct_answers": 2.5,
    "perf/tokens_per_s": 1234.5,
}
EVALUATION: dict[str, Any] = {
    "step": 0,
    "dataset": "math500",
    "n_questions": 8,
    "pass_at_k": {"1": 0.25, "2": 0.5},
    "diff_at_k": {"1": 1.0, "2": 1.5},
    "no_answer_rate": 0.125,
}
MakeDisplay = Callable[..., tuple[Display, io.StringIO]]


@pytest.fixture
def make_display(monkeypatch: pytest.MonkeyPatch) -> MakeDisplay:
    def make(total: int, first: int = 0, *, terminal: bool, width: int = 80) -> tuple[Display, io.StringIO]:
        output = io.StringIO()

        def console(file: TextIO, **settings: Any) -> Console:
            settings["soft_wrap"] = not terminal
            return Console(file=output, force_terminal=terminal, width=width, _environ={}, **settings)

        monkeypatch.setattr(display_module, "Console", console)
        display = Display()
        display.begin(total, first)
        return display, output

    return make


def test_plain_lines_elsewhere(make_display: MakeDisplay) -> None:
    display, output = make_display(6, terminal=False)
    with display:
        for step in range(1, 7):
            display.step({"step": step, **ROW})
        display.evaluation(EVALUATION)
    lines = output.getvalue().splitlines()
    assert lines[0] == "step 1/6  correct 0.250  solved 50.0%  distinct 2.50  1,234 tok/s"
    assert lines[6] == "step 0  math500: pass@1 0.250  pass@2 0.500  diff@2 1.50  no answer 12.5%"
    assert len(lines) == 7
    assert "\x1b" not in output.getvalue()


@pytest.mark.parametrize("total", [1, 29, 61, 1000])
def test_long_runs_write_few_lines_with_first_and_last(total: int, make_display: MakeDisplay) -> None:
    display, output = make_display(total, terminal=False)
    for step in range(1, total + 1):
        display.step({"step": step, **ROW})
    lines = output.getvalue().splitlines()
    assert len(lines) <= 62
    assert lines[0].startswith(f"step 1/{total} ")
    assert lines[-1].startswith(f"step {total}/{total} ")


@pytest.mark.parametrize("width", [70, 80, 120])
def test_a_narrow_bar_keeps_the_total_and_the_time_left(width: int, make_display: MakeDisplay) -> None:
    display, output = make_display(1000, 99, terminal=True, width=width)
    assert " 99/1000 " in _last_frame(display)
    display.step({"step": 100, **ROW, "perf/tokens_per_s": 123456.0, "exploration/solved_fraction": 1.0})
    frame = _last_frame(display)
    assert frame.count("\n") == 0
    assert frame.startswith("step  100/1000 ")
    assert re.search(r" (\d:\d\d:\d\d|-:--:--)$", frame)
    assert "correct 0.250  solved 100.0%" in frame
    assert "step 100/1000  correct" not in output.getvalue()  # no plain line besides


def test_an_evaluation_has_a_bar_of_its_own_while_it_samples(make_display: MakeDisplay) -> None:
    display, _ = make_display(1000, terminal=True)
    display.step({"step": 100, **ROW})
    with display.sampling() as progress:
        progress(16384, 32768)
        step, responses = _last_frame(display).splitlines()
    assert re.match(r"step +100/1000 ", step)
    assert responses.startswith("responses 16384/32768 ")
    assert re.search(r" (\d:\d\d:\d\d|-:--:--)$", step)
    assert "responses" not in _last_frame(display)


def _last_frame(display: Display) -> str:
    plain = Console(file=io.StringIO(), width=display.console.width, _environ={})
    with plain.capture() as capture:
        plain.print(display.bar.get_renderable())
    return capture.get().rstrip("\n")
