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


HIT, SOFT, BAL, PROOF, LEAST = "_first_hit", "_soft_exclusion", "_balanced", "_lower_bound_proof", "_lower_bound"


@pytest.mark.parametrize(
    ("group", "name", "wrong", "statement"),
    [
        (HIT, "first_hit_bound", lambda one, rho: bounds.first_hit_mean(one, rho) - 0.1, "lemma corrected"),
        (HIT, "first_hit_mean", lambda one, rho: 1.0 / bounds.shares(one), "Algorithm 3, exact"),  # of rho = 0
        (HIT, "printed_first_hit_bound", lambda one, rho: 9.0 / bounds.shares(one), "lemma as printed"),
        (SOFT, "discovery_bound", lambda one, rho: float(one.outcomes), "Algorithm 3, all outcomes seen"),
        (SOFT, "soft_exclusion_bound", lambda *_: 1.0, "Algorithm 3, regret"),
        (BAL, "balanced_first_hit_mean", lambda one: 1.0 / bounds.shares(one), "Algorithm 1, exact"),
        (BAL, "balanced_discovery_mean", lambda _: 29.29, "Algorithm 1, all outcomes seen"),  # with replacement
        (BAL, "balanced_bound", lambda *_: 1.0, "Algorithm 1, theorem"),
        (PROOF, "miss_probability", lambda K, s, t: (1 - s / K) ** (2 * t), "no optimal arm in t pulls"),
        (PROOF, "miss_probability", lambda *_: 0.6, "the step's conclusion"),
        (PROOF, "printed_step", lambda *_: 0.61, "middle step of the proof as printed"),
        (LEAST, "search_mean", lambda K, s, T: 0.7 * min(K, T), "least regret, in gaps"),
        (LEAST, "search_mean", lambda *_: 0.1, "lower bound as printed, c"),
        (LEAST, "search_bound", lambda K, s, T: 0.7 * min(K, T), "lower bound corrected"),
        (LEAST, "printed_search_bound", lambda *_: 1e-9, "where s is near K"),
        ("_partition_aware", "soft_exclusion_bound", lambda *_: 1.0, "Algorithm 2, theorem"),
    ],
)
def test_a_wrong_statement_fails(
    group: str, name: str, wrong: object, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "bounds", type("Wrong", (), {**vars(bounds), name: staticmethod(wrong)}))
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
