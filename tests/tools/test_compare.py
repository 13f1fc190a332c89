"""Runs side by side: columns, measures, and what is refused or left out."""

import json
import statistics
from pathlib import Path

import pytest
from written_runs import cut_off, evaluation, study, toy_run

from outcome_rl.cli import main
from outcome_rl.files.jsonl import read_rows, write_rows
from outcome_rl.tools.compare import compare_runs


def test_runs_that_differ_only_by_seed_are_one_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders, out = study(tmp_path, 0.05), tmp_path / "found.json"
    main(["compare", *map(str, folders), "--json", str(out)])
    printed, found = capsys.readouterr().out, json.loads(out.read_text())
    assert list(found["methods"]) == ["bonus=none", "bonus=ucb_con"]
    lasts = [[*read_rows(tmp_path / f"none{seed}" / "evaluations.jsonl")][-1]["pass_at_k"]["32"] for seed in range(5)]
    mean, sd = statistics.fmean(lasts), statistics.stdev(lasts)
    assert found["methods"]["bonus=none"]["figures"]["last pass@32"] == pytest.approx({"mean": mean, "sd": sd, "n": 5})
    assert "[1] bonus=none: 5 runs\n[2] bonus=ucb_con: 5 runs" in printed
    assert f"{mean:.3f} ± {sd:.3f}" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_a_measure_that_a_run_lacks_is_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = study(tmp_path, 0.2)
    (folders[2] / "metrics.jsonl").write_text("")
    main(["compare", *map(str, folders)])
    assert f"solved is left out: not in {folders[2]}" in capsys.readouterr().out


def test_runs_on_other_data_are_refused_by_name(tmp_path: Path) -> None:
    one, other = toy_run(tmp_path / "a", "none", 0, (0.6, 0.8)), tmp_path / "b"
    toy_run(other, "ucb", 0, (0.1, 0.2), "data.val_files=[toy:validation,other.jsonl]")
    with pytest.raises(ValueError, match=rf"data\.val_files is .* in {one} and .*other\.jsonl.* in {other}"):
        compare_runs([one, other])


def test_the_best_checkpoint_is_chosen_on_validation_data(tmp_path: Path) -> None:
    early = toy_run(tmp_path / "early", "none", 0, (0.6, 0.8), best=0.9)
    late = toy_run(tmp_path / "late", "none", 1, (0.6, 0.8), best=0.1)
    # Test data were not evaluated after step 25, so the validation figure stands for the best checkpoint of every run.
    figures = compare_runs([early, late])["methods"]["all runs"]["figures"]
    assert figures["best validation pass@1"]["mean"] == pytest.approx((0.9 + 0.5) / 2)
    assert "best pass@1" not in figures
    rows = [*read_rows(late / "evaluations.jsonl"), evaluation(25, "toy:test", 0.4, 0.7)]
    write_rows(late / "evaluations.jsonl", sorted(rows, key=lambda row: row["step"]))
    assert compare_runs([late])["methods"]["all runs"]["figures"]["best pass@1"]["mean"] == 0.6


def test_a_label_has_every_setting_in_which_the_methods_differ(tmp_path: Path) -> None:
    """A difference that is not shown would pass for the effect of one that is; so would counts of another run."""
    runs = [
        toy_run(tmp_path / "a", "none", 0, (0.6, 0.8)),
        toy_run(tmp_path / "b", "ucb", 0, (0.6, 0.8), "exploration.coef=0.3", "actor.grad_clip=2"),
        toy_run(tmp_path / "c", "ucb", 0, (0.6, 0.8), "exploration.coef=0.4", "trainer.initial_exploration=counts"),
    ]
    labels = [label.split(", ") for label in compare_runs(runs)["methods"]]
    assert [label[0] for label in labels] == ["bonus=none", "bonus=ucb", "bonus=ucb"]
    assert [label[1] for label in labels[1:]] == ["coef=0.3", "coef=0.4"]
    assert [label[-2] for label in labels] == ["grad_clip=1.0", "grad_clip=2.0", "grad_clip=1.0"]
    assert [label[-1] for label in labels] == [*["initial_exploration="] * 2, "initial_exploration=counts"]


def test_one_run_given_twice(tmp_path: Path) -> None:
    one = toy_run(tmp_path / "a", "none", 0, (0.6, 0.8))
    with pytest.raises(ValueError, match="same settings and seed"):
        compare_runs([one, one])


def test_runs_are_compared_at_the_last_step_that_all_have_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = study(tmp_path, 0.2)
    whole = compare_runs(folders)
    assert (whole["data"], whole["step"]) == ("test", 50)
    cut_off(folders[-1], 25)
    found = compare_runs(folders)
    assert (found["data"], found["step"]) == ("validation", 25)  # tests come at the end
    assert found["methods"]["bonus=none"]["figures"]["last pass@32"]["mean"] == pytest.approx(0.7)
    main(["compare", *map(str, folders)])
    assert "on validation data after step 25, the last that all runs have evaluated" in capsys.readouterr().out
    cut_off(folders[-1], 20)
    with pytest.raises(ValueError, match="ucb_con4 has no evaluation after step 0"):
        compare_runs(folders)
