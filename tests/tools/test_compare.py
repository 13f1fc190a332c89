"""Comparisons find methods, pairs and units by themselves, and agree with arithmetic by hand."""

import json
import random
import re
import statistics
from pathlib import Path

import pytest
import written_runs
from written_runs import evaluation

from outcome_rl.cli import main
from outcome_rl.files.jsonl import read_rows, write_rows
from outcome_rl.tools.compare import compare_runs


def write_run(folder: Path, bonus: str, seed: int, last: tuple[float, float], *more: str, best: float = 0.0) -> Path:
    settings = [f"exploration.bonus={bonus}", f"trainer.seed={seed}", f"trainer.experiment_name={folder.name}", *more]
    rows = [
        evaluation(0, "toy:validation", 0.2, 0.8),
        evaluation(0, "toy:test", 0.3, 0.83),
        evaluation(25, "toy:validation", best, 0.7),
        evaluation(50, "toy:validation", 0.5, 0.75),
        evaluation(50, "toy:test", *last),
    ]
    metrics = [
        {"step": step, "epoch": (step - 1) // 2, "exploration/solved_fraction": 0.1 * step}
        for step in range(1, 6)  # two whole epochs, and half of one
    ]
    return written_runs.write_run(folder, settings, rows, metrics)


def study(root: Path, gain: float, noise: float = 0.002, seeds: int = 5) -> list[Path]:
    draw = random.Random(0)
    folders = []
    for bonus in ("none", "ucb_con"):
        for seed in range(seeds):
            shared = random.Random(seed).uniform(-0.1, 0.1)  # of a seed: paired differences do not see it
            top = 0.8 + shared + (gain if bonus == "ucb_con" else 0.0) + draw.uniform(-noise, noise)
            folders.append(write_run(root / f"{bonus}{seed}", bonus, seed, (0.6 + shared, top)))
    return folders


@pytest.mark.parametrize(("gain", "word"), [(0.05, "higher"), (-0.05, "lower"), (0.0, "no difference")])
def test_a_difference_is_found_in_spite_of_the_spread_over_seeds(tmp_path: Path, gain: float, word: str) -> None:
    found = compare_runs(study(tmp_path, gain))
    assert found["baseline"] == "bonus=none"
    assert list(found["methods"]) == ["bonus=none", "bonus=ucb_con"]
    row = next(row for row in found["verdicts"] if row["measure"] == "last pass@32")
    assert (row["verdict"], row["units"]) == (word, 5)
    assert row["mean"] == pytest.approx(gain, abs=0.004)
    lasts = [[*read_rows(tmp_path / f"none{seed}" / "evaluations.jsonl")][-1] for seed in range(5)]
    expected = [row["pass_at_k"]["32"] for row in lasts]
    assert found["methods"]["bonus=none"]["figures"]["last pass@32"] == {
        "mean": pytest.approx(statistics.fmean(expected)),
        "sd": pytest.approx(statistics.stdev(expected)),
        "n": 5,
    }


def test_two_seeds_decide_nothing(tmp_path: Path) -> None:
    found = compare_runs(study(tmp_path, 0.2, seeds=2))
    assert {row["verdict"] for row in found["verdicts"]} == {"undecided"}
    assert all(row["interval"] is None for row in found["verdicts"])


def cut_off(folder: Path, step: int) -> None:
    """Remove what a run has written after a step, as if it was still running."""
    for name in ("evaluations", "metrics"):
        path = folder / f"{name}.jsonl"
        write_rows(path, [row for row in read_rows(path) if row["step"] <= step])


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


def test_what_is_left_out_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = study(tmp_path, 0.2)
    (folders[2] / "metrics.jsonl").write_text("")
    lonely = write_run(tmp_path / "lonely", "ucb_con", 77, (0.6, 0.9))
    found = compare_runs([*folders, lonely])
    assert found["left_out"] == {"solved": [str(folders[2])]}
    assert found["unpaired"] == [str(lonely)]
    main(["compare", *map(str, [*folders, lonely])])
    printed = capsys.readouterr().out
    assert f"solved is left out: not in {folders[2]}" in printed
    assert f"so in no difference: {lonely}" in printed


def test_a_metric_that_is_no_number_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "nan", "none", 0, (0.6, 0.8))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "epoch": 2, "exploration/distinct_answers": NaN}\n')
    with pytest.raises(ValueError, match=r"row 6: exploration/distinct_answers must be a finite number; got nan"):
        compare_runs([folder])


def test_the_best_checkpoint_is_chosen_on_validation_data(tmp_path: Path) -> None:
    early = write_run(tmp_path / "early", "none", 0, (0.6, 0.8), best=0.9)
    late = write_run(tmp_path / "late", "none", 1, (0.6, 0.8), best=0.1)
    # Test data were not evaluated after step 25, so the validation figure stands for the best checkpoint of every run.
    figures = compare_runs([early, late])["methods"]["all runs"]["figures"]
    assert figures["best validation pass@1"]["mean"] == pytest.approx((0.9 + 0.5) / 2)
    assert "best pass@1" not in figures
    rows = [*read_rows(late / "evaluations.jsonl"), evaluation(25, "toy:test", 0.4, 0.7)]
    write_rows(late / "evaluations.jsonl", sorted(rows, key=lambda row: row["step"]))
    assert compare_runs([late])["methods"]["all runs"]["figures"]["best pass@1"]["mean"] == 0.6


def test_tasks_are_the_units_where_there_are_three(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / f"{bonus}{task}{seed}", bonus, seed, (0.6, 0.7), f"data.train_files=toy:train@{task}")
        for bonus in ("none", "batch")
        for task in range(3)
        for seed in range(2)
    ]
    found = compare_runs(folders)
    assert found["unit"] == "task"
    assert {row["units"] for row in found["verdicts"]} == {3}


def test_two_tasks_are_averaged_over_the_seeds_that_both_have(tmp_path: Path) -> None:
    """Pairs of task and seed are no units: the runs of a task share what the other task lacks."""
    folders = [
        write_run(
            tmp_path / f"{bonus}{task}{seed}",
            bonus,
            seed,
            (0.6, 0.7 + (0.02 + 0.04 * task) * (bonus == "batch")),
            f"data.train_files=toy:train@{task}",
        )
        for bonus in ("none", "batch")
        for task in range(2)
        for seed in range(4)
        if (task, seed) != (1, 3)
    ]
    found = compare_runs(folders)
    row = next(row for row in found["verdicts"] if row["measure"] == "last pass@32")
    assert (found["unit"], row["units"]) == ("seed", 3)
    assert row["mean"] == pytest.approx(0.04)


def test_other_evaluation_data_are_refused(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / "a", "none", 0, (0.6, 0.8)),
        write_run(tmp_path / "b", "ucb", 0, (0.1, 0.2), "data.val_files=[toy:validation,other.jsonl]"),
    ]
    with pytest.raises(ValueError, match=r"same data\.val_files .*bonus=ucb has .*other\.jsonl"):
        compare_runs(runs)


def test_a_label_has_every_setting_in_which_the_methods_differ(tmp_path: Path) -> None:
    """A difference that is not shown would pass for the effect of one that is."""
    runs = [
        write_run(tmp_path / "a", "none", 0, (0.6, 0.8)),
        write_run(tmp_path / "b", "ucb", 0, (0.6, 0.8), "exploration.coef=0.3", "actor.grad_clip=2"),
        write_run(tmp_path / "c", "ucb", 0, (0.6, 0.8), "exploration.coef=0.4", "actor.grad_clip=2"),
    ]
    labels = [label.split(", ") for label in compare_runs(runs)["methods"]]
    assert [label[0] for label in labels] == ["bonus=none", "bonus=ucb", "bonus=ucb"]
    assert [label[1] for label in labels[1:]] == ["coef=0.3", "coef=0.4"]
    assert [label[-1] for label in labels] == ["grad_clip=1.0", "grad_clip=2.0", "grad_clip=2.0"]


def test_a_setting_that_an_older_version_lacked_has_its_default(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(seed), "none", seed, (0.6, 0.8)) for seed in range(2)]
    config = runs[0] / "config.yaml"
    config.write_text(re.sub(r"\n  gold_tolerance: true", "", config.read_text()))
    assert list(compare_runs(runs)["methods"]) == ["all runs"]


def test_counts_that_a_run_began_with_make_another_method(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / "a", "ucb", 0, (0.6, 0.8)),
        write_run(tmp_path / "b", "ucb", 0, (0.6, 0.8), "trainer.initial_exploration=counts"),
    ]
    assert list(compare_runs(runs)["methods"]) == ["initial_exploration=", "initial_exploration=counts"]


def test_one_run_given_twice(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", "none", 0, (0.6, 0.8))
    with pytest.raises(ValueError, match="same settings and seed"):
        compare_runs([one, one])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = study(tmp_path, 0.05)
    out = tmp_path / "found.json"
    main(["compare", *map(str, folders), "--json", str(out)])
    printed = capsys.readouterr().out
    assert "[1] bonus=none: 5 runs\n[2] bonus=ucb_con: 5 runs" in printed
    assert "[2] minus [1]" in printed
    assert "higher" in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert json.loads(out.read_text())["baseline"] == "bonus=none"
