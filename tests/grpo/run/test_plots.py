"""Charts of complete, short and incomplete records."""

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from outcome_rl.grpo.run.plots import PALETTE, comparison_charts, evaluation_charts, training_charts


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
        "Distinct answers a question so far",
        "Token entropy (nats)",
        "Time of a step (s)",
    ]
    assert colours(charts["Correct responses of the batch"]) == {PALETTE[0]}
    assert colours(charts["Token entropy (nats)"]) == set(PALETTE[:2])
    assert colours(charts["Time of a step (s)"]) == set(PALETTE[:4])


def test_a_single_step_is_drawn() -> None:
    charts = training_charts([metrics(1)])
    assert PALETTE[0] in colours(charts["Correct responses of the batch"])
    assert PALETTE[0] in colours(charts["Time of a step (s)"])


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


def test_the_same_records_are_the_same_picture() -> None:
    assert training_charts([metrics(4)]) == training_charts([metrics(4)])
