"""The benchmark of the policy loss from its command to its record, on a head small enough for a test."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench import cases, loss, loss_page, loss_report
from bench.baselines import BASELINES, COMPILED, LOGITS_BASELINES, SUPPORT_BASELINES, Baseline
from bench.cases import Spec
from bench.loss_plans import Plan, cpu_plans, gpu_plans
from bench.loss_report import Record

SPEC = Spec(model="tiny", dtype=torch.float32, sequences=2, length=8)


def wrong(hidden: torch.Tensor, weight: torch.Tensor, batch: cases.Batch) -> torch.Tensor:
    return 2 * BASELINES[1].loss(hidden, weight, batch)


def absent(device: torch.device) -> str:
    return "not installed"


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(cases.MODELS, "tiny", (32, 257))
    monkeypatch.chdir(tmp_path)
    baselines = [*BASELINES[:2], Baseline("wrong", wrong), Baseline("absent", wrong, obstacle=absent)]
    monkeypatch.setattr(loss, "BASELINES", baselines)
    monkeypatch.setattr(
        loss, "SUPPORT_BASELINES", [baseline for baseline in SUPPORT_BASELINES if baseline.name != COMPILED]
    )
    monkeypatch.setattr(loss, "LOGITS_BASELINES", LOGITS_BASELINES[:2])
    plans = [
        Plan(name="main", spec=SPEC, seconds=1, workspaces=(1.0, 0.25), all_modes=True),
        Plan(name="from logits", spec=SPEC, seconds=1, from_logits=True),
        *(Plan(name=f"support of {kept}", spec=replace(SPEC, kept=kept), seconds=1) for kept in (1, 5)),
    ]
    monkeypatch.setattr(loss, "cpu_plans", lambda: plans)


def measured(*arguments: str) -> Record:
    loss.main(["--device", "cpu", "--rounds", "2", *arguments])
    (path,) = Path("outcome-rl-bench").glob("*.json")
    content: Record = json.loads(path.read_text())
    return content


def test_a_run_leaves_a_record_with_every_loss_timed_or_explained(capsys: pytest.CaptureFixture[str]) -> None:
    content = measured()
    assert set(content) == set(Record.__annotations__)
    assert content["config"]["rounds"] == 2
    assert set(content["config"]["baselines"]) == {"trl", "liger_kernel", "cut_cross_entropy", "verl", "quack"}
    main, from_logits, *supports = content["figures"]["sections"].values()
    rows = {row["name"]: row for row in main["rows"]}
    assert list(rows) == [
        "outcome_rl",
        "outcome_rl, token loss of your own",
        "outcome_rl, workspace 1 of the logits",
        "outcome_rl, workspace 0.25 of the logits",
        "plain PyTorch",
        "wrong",
        "absent",
    ]
    for row in rows.values():
        assert set(row) == set(loss_report.Row.__annotations__)
        assert bool(row["times"]) == (row["obstacle"] is None)
    assert set(rows["outcome_rl"]["times"]) == set(main["floors"]) == set(loss_report.HEADINGS)
    assert rows["outcome_rl"]["times"]["forward"]["rounds"] == 2
    assert rows["absent"]["obstacle"] == "not installed"
    assert rows["wrong"]["obstacle"].startswith("failed: error of the ")
    assert main["case"]["tokens"] == 16
    assert [row["obstacle"] for row in from_logits["rows"]] == [None, None]
    for section in supports:
        assert [row["name"] for row in section["rows"]][::2] == [
            "outcome_rl",
            "outcome_rl, policy_loss of masked logits",
        ]
        assert all(row["obstacle"] is None and row["times"] for row in section["rows"])
    assert from_logits["floor"] == "a copy of the logits"
    assert loss_report.table(main) in capsys.readouterr().out


def test_after_the_time_limit_no_section_begins_and_what_was_measured_is_on_record(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 2.0, *[1000.0] * 3])
    monkeypatch.setattr("bench.loss.time", type("Clock", (), {"monotonic": lambda: next(clock)}))
    assert list(measured("--time-limit", "100")["figures"]["sections"]) == ["main"]
    assert "from logits: left out, 1000 s of 100 are over" in capsys.readouterr().err


def test_a_part_of_the_sections_does_not_replace_the_record_of_all() -> None:
    measured("--sections", "from logits")
    assert [path.name for path in Path("outcome-rl-bench").iterdir()] == ["loss-cpu-from-logits.json"]


def test_sections_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="no section has that in its name"):
        measured("--sections", "nonsense")


def test_the_sections_that_stand_for_the_others_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a processor that is fast in bfloat16, as the committed results are."""
    monkeypatch.setattr("bench.loss_plans.preferred_dtype", lambda device: (torch.bfloat16, ""))
    names = [plan.name for plan in (*cpu_plans(), *gpu_plans())]
    assert len(set(names)) == len(names)
    assert {*loss_page.MAIN, *loss_page.SUPPORTS} <= set(names)


def test_losses_can_be_left_out() -> None:
    sections = measured("--without", "wrong", "absent", "plain PyTorch")["figures"]["sections"]
    assert {row["name"] for row in sections["from logits"]["rows"]} == {"outcome_rl"}
    assert all(row["name"].startswith("outcome_rl") for row in sections["main"]["rows"])
