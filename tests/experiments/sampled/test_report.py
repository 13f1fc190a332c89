"""The plan on sampled gradients: its test of equivalence, its power, and pairs that share all but one setting."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.paper.plan import ALL
from experiments.sampled import report
from experiments.sampled.report import ROWS, TOY, Row, power, rows_table, verdict
from experiments.smollm2.sampled import SAMPLED, STUDY
from experiments.smollm2.study import GRPO, result_file, settings


@pytest.mark.parametrize(
    ("differences", "word"),
    [
        ([0.01, -0.01, 0.01, -0.01], "equivalent"),
        ([0.0] * 4, "equivalent"),
        ([0.06, 0.07, 0.06, 0.07], "different"),
        ([-0.06, -0.07, -0.06, -0.07], "different"),
        ([0.02, 0.03, 0.02, 0.03], "undecided"),
        ([0.10, -0.10, 0.09, -0.09], "undecided"),
    ],
)
def test_a_verdict_is_where_the_interval_lies(differences: list[float], word: str) -> None:
    assert verdict(differences, 0.025)[1] == word


@pytest.mark.parametrize("row", ROWS)
def test_power_is_the_share_of_equivalent_studies(row: Row) -> None:
    drawn = np.random.default_rng(1).normal(0, row.spread, (1000, row.units))
    words = [verdict(list(differences), row.margin)[1] for differences in drawn]
    assert words.count("equivalent") / len(words) == pytest.approx(power(row), abs=0.04)
    assert power(row) > 0.8


def test_verdicts_wait_for_the_last_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "differences", lambda row: [0.0] * (row.units - (row.task != TOY)))
    lines = rows_table().splitlines()[2:8]
    assert ["equivalent" in line for line in lines] == [row.task == TOY for row in ROWS]
    assert "4 of 5 done" in lines[-1]


def test_pairs_share_all_settings_but_one(tmp_path: Path) -> None:
    for method in ("none", "maxrl+batch"):
        sampled, exact = ALL[f"{method}-sampled"], ALL[method]
        assert sampled.settings == (*exact.settings, "actor.sample_below=0.02")
        assert replace(sampled, label=exact.label, settings=exact.settings) == exact
    pytest.importorskip("reasoning_gym", reason="Countdown comes from the package reasoning-gym")
    exact, sampled = (settings(STUDY, tmp_path, 0, method) for method in (GRPO, SAMPLED))
    assert (exact.actor.sample_below, sampled.actor.sample_below) == (0, 1.25e-4)
    assert replace(sampled.actor, sample_below=0.0) == exact.actor
    assert (sampled.data, sampled.rollout, sampled.exploration) == (exact.data, exact.rollout, exact.exploration)
    assert result_file(STUDY, 0, GRPO).exists()
