"""`python -m experiments.bandits`: output, files, and checks that can fail."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import invoke

from experiments.bandits import bounds, checks, sweeps
from experiments.bandits.__main__ import main


def test_every_statement_is_as_the_page_says() -> None:
    result = invoke(main, "--check", "--seeds", "200")
    assert result.exit_code == 0, result.output
    assert "0 failed" in result.stdout
    assert result.stdout.count("does not hold") == 3


@pytest.mark.parametrize(
    ("group", "name", "replacement", "statement"),
    [
        (
            "_first_hit",
            "first_hit_bound",
            lambda instance, rho: bounds.first_hit_mean(instance, rho) - 0.1,
            "lemma corrected",
        ),
        (
            "_first_hit",
            "first_hit_mean",
            lambda instance, rho: 1.0 / bounds._shares(instance),
            "Algorithm 3, exact",
        ),  # of rho = 0
        (
            "_first_hit",
            "printed_first_hit_bound",
            lambda instance, rho: 9.0 / bounds._shares(instance),
            "lemma as printed",
        ),
        (
            "_soft_exclusion",
            "discovery_bound",
            lambda instance, rho: float(instance.outcomes),
            "Algorithm 3, all outcomes seen",
        ),
        ("_balanced", "balanced_first_hit_mean", lambda instance: 1.0 / bounds._shares(instance), "Algorithm 1, exact"),
        (
            "_balanced",
            "balanced_discovery_mean",
            lambda instance: 29.29,
            "Algorithm 1, all outcomes seen",
        ),  # with replacement
        ("_balanced", "balanced_bound", lambda instance, horizon: 1.0, "Algorithm 1, theorem"),
        (
            "_lower_bound_proof",
            "miss_probability",
            lambda arms, good, pulls: (1 - good / arms) ** (2 * pulls),
            "no optimal arm in t pulls",
        ),
        ("_lower_bound_proof", "miss_probability", lambda arms, good, pulls: 0.6, "the step's conclusion"),
        ("_lower_bound_proof", "printed_step", lambda arms, good: 0.61, "middle step of the proof as printed"),
        ("_lower_bound", "search_mean", lambda arms, good, horizon: 0.7 * min(arms, horizon), "least regret, in gaps"),
        ("_lower_bound", "search_mean", lambda arms, good, horizon: 0.1, "lower bound as printed, c"),
        ("_lower_bound", "search_bound", lambda arms, good, horizon: 0.7 * min(arms, horizon), "lower bound corrected"),
        ("_lower_bound", "printed_search_bound", lambda arms, good, horizon: 1e-9, "where s is near K"),
        ("_partition_aware", "soft_exclusion_bound", lambda instance, rho, horizon: 1.0, "Algorithm 2, theorem"),
        ("_soft_exclusion", "soft_exclusion_bound", lambda instance, rho, horizon: 1.0, "Algorithm 3, regret"),
    ],
)
def test_a_wrong_statement_fails(
    group: str, name: str, replacement: object, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "bounds", type("Wrong", (), {**vars(bounds), name: staticmethod(replacement)}))
    failed = [check.statement for check in getattr(checks, group)(np.arange(100)) if check.verdict == "FAILED"]
    assert any(statement in each for each in failed)


def test_a_search_that_repeats_itself_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With arms drawn with repeats the statements on search without repeats fail, and the exit status says so."""
    monkeypatch.setattr(checks, "BALANCED", checks.SoftExclusion(0.0))
    result = invoke(main, "--check", "--seeds", "400")
    assert result.exit_code == 1
    assert "FAILED" in result.stdout


def test_a_figure_of_all_and_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "RHOS", (0.0, 1.0))
    monkeypatch.setattr(sweeps, "ALGORITHMS", {name: sweeps.ALGORITHMS[name] for name in ("Algorithm 1, balanced",)})
    result = invoke(main, "--seeds", "3", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "bandits.json").read_text())
    assert written["config"] == {"seeds": 3}
    assert [panel["x"] for panel in written["figures"]] == ["T", "K", "m", "rho", "rho", "m", "s", "s"]
    for panel in written["figures"]:
        for curve in panel["curves"].values():
            assert len(curve["mean"]) == len(panel["values"])
    assert sweeps.table(written["figures"]) in result.stdout
    assert (tmp_path / "bandits.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"), [(("--check", "--seeds", "99"), "seeds must be at least 100"), (("--seeds", "1"), "2")]
)
def test_too_few_seeds_are_refused(arguments: tuple[str, ...], message: str) -> None:
    result = invoke(main, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_table_shows_errors_of_what_was_simulated_alone() -> None:
    panel = sweeps.Panel(
        title="t",
        x="K",
        y="y",
        values=[1, 2],
        curves={
            "seen": sweeps.Curve(mean=[1234.5, 0.25], standard_error=[20.0, 0.0123]),
            "bound": sweeps.Curve(mean=[None, 1e6], standard_error=None),
        },
    )
    assert sweeps.table([panel]).splitlines() == [
        "| t; K = | 1 | 2 |",
        "|---|---:|---:|",
        "| seen | 1,234 ± 20 | 0.25 ± 0.012 |",
        "| bound |  | 1,000,000 |",
    ]
