"""The smallest plan from beginning to report; what is done is not done again, and what fails is named."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import invoke

from experiments.paper import runs
from experiments.paper.__main__ import main, reproduce
from experiments.paper.base import Base
from experiments.paper.plan import (
    ABLATIONS,
    ALL,
    ESTIMATORS,
    GENTLE,
    METHODS,
    PLANS,
    QUICK,
    SAMPLED,
    SAMPLING,
    SMOKE,
    SUMS,
    Cell,
    Plan,
)
from outcome_rl.files.jsonl import read_rows
from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.trainer import train
from outcome_rl.toy import DialectTask


def train_here(settings: list[str], log: Path) -> None:
    """In a thread of this process: a process of its own spends most of the time importing PyTorch."""
    train(load_config("toy", settings))


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smoke")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "train_in_a_process", train_here)
        patch.setattr("outcome_rl.grpo.trainer.collect_signals", lambda: nullcontext([]))  # the main thread's alone
        reproduce("smoke", folder, processes=1)
    return folder


@pytest.fixture
def untrained(smoke: Path, tmp_path: Path) -> Path:
    """The plan's data and base samples, before the first training."""
    for name in ("data", "base"):
        (tmp_path / name).symlink_to(smoke / name)
    return tmp_path


@pytest.mark.nightly
def test_the_smallest_plan_ends_with_a_report(smoke: Path) -> None:
    records = json.loads((smoke / "records.json").read_text())
    assert [run["method"] for run in records["runs"]] == ["none", "batch", "ucb_con-c-1", "none", "batch"]
    for run in records["runs"]:
        assert {row["step"] for row in run["evaluations"]} == {0, 2, 4}
        assert len(run["curves"]["solved"]) == SMOKE.steps
        # What the last step's row says of all questions is what the counts and the solved set of the checkpoint say.
        assert np.mean(run["questions_solved"]) == pytest.approx(run["curves"]["solved"][-1], abs=1e-6)
        assert np.mean(run["questions_distinct"]) == pytest.approx(run["curves"]["distinct"][-1], abs=1e-6)
    assert "Batch" in (smoke / "report.md").read_text()


@pytest.mark.nightly
def test_the_base_policy_is_sampled_as_often_as_training_does(smoke: Path) -> None:
    records = json.loads((smoke / "records.json").read_text())
    for cell in records["cells"]:
        epoch = cell["questions"] // SMOKE.batch
        (base,) = cell["base"]
        assert base["steps"] == list(range(epoch, SMOKE.steps + 1, epoch))
        place = Cell(cell["instance"], cell["policy"], cell["split"])
        samples = Base(SMOKE, smoke).samples(place, 0)
        assert samples.keys.shape == (cell["questions"], SMOKE.n * SMOKE.steps // epoch)
        assert np.mean(base["questions_solved"]) == samples.correct.any(axis=1).mean()
        assert base["solved"][-1] == pytest.approx(np.mean(base["questions_solved"]), abs=1e-6)


@pytest.mark.nightly
def test_what_is_done_is_not_done_again(smoke: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("nothing is left to run")

    before = json.loads((smoke / "records.json").read_text())
    monkeypatch.setattr(runs, "train_in_a_process", fail)
    monkeypatch.setattr("experiments.paper.base.open_sampler", fail)
    reproduce("smoke", smoke, processes=1)
    after = json.loads((smoke / "records.json").read_text())
    assert {key: after[key] for key in ("cells", "runs")} == {key: before[key] for key in ("cells", "runs")}


@pytest.mark.nightly
def test_a_run_that_fails_is_named_with_its_log(untrained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(SMOKE.runs())

    def fail(settings: list[str], log: Path) -> None:
        log.parent.mkdir(exist_ok=True)
        raise ChildProcessError(f"outcome-rl train ended with status 1; see {log}")

    monkeypatch.setattr(runs, "train_in_a_process", fail)
    result = invoke(main, "smoke", "--out", untrained, "--processes", "2")
    assert result.exit_code == 2
    assert f"5 of 5 runs failed, the first: outcome-rl train ended with status 1; see {untrained}" in result.stderr
    assert f"{first.name}.log" in result.stderr


def test_a_training_that_cannot_run_raises_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(ChildProcessError, match=r"ended with status 2; see .*run\.log"):
        runs.train_in_a_process(["rollout.nn=3"], tmp_path / "run.log")
    assert "rollout.n" in (tmp_path / "run.log").read_text()


@pytest.mark.nightly
def test_what_is_left_out_of_the_report_of_a_stopped_plan_is_named(
    smoke: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "stopped"
    shutil.copytree(smoke, folder)
    (left,) = [run for run in SMOKE.runs() if (run.cell.split, run.method) == ("hard", "batch")]
    (runs.run_dir(folder, left) / "evaluations.jsonl").unlink()

    def fail(settings: list[str], log: Path) -> None:
        raise ChildProcessError("no more")

    monkeypatch.setattr(runs, "train_in_a_process", fail)
    with pytest.raises(ChildProcessError, match="1 of 1 runs failed, the first: no more"):
        reproduce("smoke", folder, processes=1)
    records = json.loads((folder / "records.json").read_text())
    assert records["left_out"] == ["0-strong-hard"]
    assert {record["split"] for record in records["cells"] + records["runs"]} == {"medium"}
    page = (folder / "report.md").read_text()
    assert "**Not finished, and left out** (rule table, base policy, split): 0-strong-hard.\n" in page
    assert "\n## Hard" not in page


@pytest.mark.nightly
def test_a_folder_of_another_plan_is_refused(smoke: Path) -> None:
    with pytest.raises(ValueError, match="holds the runs of another plan"):
        runs.check_same_plan(QUICK, smoke)


def test_seeds_may_be_added_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []

    def carry_out(plan: Plan, base: Base, folder: Path, processes: int) -> None:
        runs.check_same_plan(plan, folder)
        asked.append(plan.seeds)

    monkeypatch.setattr("experiments.paper.__main__.carry_out", carry_out)
    monkeypatch.setattr("experiments.paper.__main__.collect", lambda plan, base, folder: {"cells": []})
    monkeypatch.setattr("experiments.paper.__main__.report", lambda folder: None)
    for seeds in (1, None):
        reproduce("quick", tmp_path, processes=1, seeds=seeds)
    assert asked == [(0,), (0, 1)]


def test_easy_questions_need_no_hard_rule(tmp_path: Path) -> None:
    rows = list(read_rows(Base(QUICK, tmp_path).training_file(Cell(0, "strong", "easy"))))
    task = DialectTask(0)
    assert len(rows) == QUICK.train_questions
    for row in rows:
        dialect, _, symbol1, _, symbol2, *_ = row["problem"].split()
        for rule in (task.rules[dialect, symbol1], task.rules[dialect, symbol2]):
            assert rule.beliefs[rule.operation] >= 0.35


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_plans_fit_together(plan: Any) -> None:
    """Base policy and training can be compared only where every question was sampled equally often."""
    epoch = plan.train_questions // plan.batch
    assert plan.train_questions % plan.batch == plan.steps % epoch == plan.steps % plan.test_freq == 0
    assert plan.hard_questions % plan.batch == 0
    assert len({run.name for run in plan.runs()}) == len(list(plan.runs()))
    assert len(ALL) == sum(map(len, (METHODS, ESTIMATORS, SUMS, GENTLE, SAMPLING, SAMPLED, ABLATIONS)))


@pytest.mark.parametrize("method", ALL.values(), ids=ALL)
def test_settings_of_every_method_are_valid(method: Any) -> None:
    config = load_config("toy", method.overrides("easy"))
    b0 = 1.0 if method.b0 is None else method.b0
    assert config.exploration.bonus == method.bonus.replace("ucb_con", f"ucb_con(b0={b0})")
    assert config.exploration.coef == method.coef
